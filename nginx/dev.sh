#!/usr/bin/env bash
# Runs a real nginx with nginx/goblin-store.conf and a development certificate, without root.
#
#   nginx/dev.sh [--dir DIR] [--port PORT]... [--upstream HOST:PORT|unix:PATH] [--background]
#
# Everything lives in DIR (default: target/nginx): the development CA (ca.pem, for AWS_CA_BUNDLE,
# --cacert and so on), the certificate for localhost, 127.0.0.1, s3.localhost and
# *.s3.localhost, the generated nginx.conf, its logs and its pid (nginx.pid).
# In the foreground the shell becomes nginx, so its pid is the pid of this process.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
dir="$here/../target/nginx"
upstream=127.0.0.1:9000
ports=()
daemon=off

while [ $# -gt 0 ]; do
    case $1 in
        --dir) dir=$2; shift 2 ;;
        --port) ports+=("$2"); shift 2 ;;
        --upstream) upstream=$2; shift 2 ;;
        --background) daemon=on; shift ;;
        *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
[ ${#ports[@]} -gt 0 ] || ports=(8443)

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

# A CA of our own and a certificate signed by it; both are made once and kept.
make_certificate() {
    [ -s "$dir/server.pem" ] && return
    local names='DNS:localhost,DNS:s3.localhost,DNS:*.s3.localhost,IP:127.0.0.1,IP:::1'
    openssl req -x509 -new -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 -days 3650 \
        -subj '/CN=goblin-store development CA' -keyout "$dir/ca.key" -out "$dir/ca.pem" \
        -addext 'basicConstraints=critical,CA:TRUE' \
        -addext 'keyUsage=critical,keyCertSign,cRLSign' 2>/dev/null
    openssl req -new -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 \
        -subj '/CN=localhost' -keyout "$dir/server.key" -out "$dir/server.csr" 2>/dev/null
    cat > "$dir/server.ext" <<EXT
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
subjectAltName=$names
EXT
    openssl x509 -req -in "$dir/server.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" \
        -CAcreateserial -days 820 -extfile "$dir/server.ext" -out "$dir/server.pem" 2>/dev/null
    chmod 600 "$dir/ca.key" "$dir/server.key"
}

# The site file with its variables filled in; one server block listens on every port.
site() {
    local listen=''
    for port in "${ports[@]}"; do listen+="listen $port ssl http2; "; done
    sed -e "s|listen @LISTEN_PORT@ ssl http2;|$listen|" -e "s|@UPSTREAM@|$upstream|" \
        -e "s|@CERTIFICATE@|$dir/server.pem|" -e "s|@CERTIFICATE_KEY@|$dir/server.key|" \
        -e "s|@ACCESS_LOG@|$dir/access.log|" "$here/goblin-store.conf" > "$dir/site.conf"
}

configuration() {
    [ "$(id -u)" = 0 ] && echo "user $(id -un) $(id -gn);"
    cat <<CONF
worker_processes 2;
pid $dir/nginx.pid;
error_log $dir/error.log warn;
daemon $daemon;
events { worker_connections 4096; }
http {
    client_body_temp_path $dir/client_body_temp;
    proxy_temp_path $dir/proxy_temp;
    fastcgi_temp_path $dir/fastcgi_temp;
    scgi_temp_path $dir/scgi_temp;
    uwsgi_temp_path $dir/uwsgi_temp;
    include $dir/site.conf;
}
CONF
}

make_certificate
site
configuration > "$dir/nginx.conf"
nginx=$(command -v nginx || echo /usr/sbin/nginx)
exec "$nginx" -p "$dir" -c "$dir/nginx.conf" -e "$dir/error.log"
