#!/usr/bin/env bash
# Instructions of the server for one small GET and one small PUT, counted by callgrind.
#
#   bench/instructions.sh [SIZE]     default 4K; prints a Markdown table
#
# The server runs under callgrind with one worker; the difference between a long and a short run of
# the same requests is what the requests cost, free of the start. Needs valgrind, and release builds
# with io_uring that valgrind knows. Counts are of user space; the kernel's work is not in them.
set -euo pipefail
cd "$(dirname "$0")/.."
size=${1:-4K}
server=${GOBLIN_BIN:-target/release/goblin-store}
bench=${GOBLIN_BENCH:-target/release/goblin-bench}
short=${SHORT:-200}
long=${LONG:-1200}
work=$(mktemp -d)
pid=
cleanup() { [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true; rm -rf "$work"; }
trap cleanup EXIT
export AWS_ACCESS_KEY_ID=BENCHACCESSKEY000000 AWS_SECRET_ACCESS_KEY=benchsecretbenchsecretbenchsecret
export GOBLIN_ROOT_ACCESS_KEY=$AWS_ACCESS_KEY_ID GOBLIN_ROOT_SECRET_KEY=$AWS_SECRET_ACCESS_KEY

# count OP REQUESTS OPTIONS... -> instructions of the whole life of a server that answers them
count() {
    local op=$1 requests=$2; shift 2
    rm -rf "$work/data" "$work/out"
    # The server refuses settings in the environment that it does not know.
    env -u GOBLIN_BENCH -u GOBLIN_BIN valgrind --tool=callgrind --callgrind-out-file="$work/out" --log-file="$work/log" \
        "$server" serve --data-dir "$work/data" --listen-address 127.0.0.1 --http-port 0 \
        --admin-address 127.0.0.1:0 --memory 16M --small-memory 16M --log-segment 16M --cores 1 \
        --request-log off > "$work/server.log" 2>&1 &
    pid=$!
    until [ -s "$work/data/endpoint" ]; do
        kill -0 "$pid" 2>/dev/null || { cat "$work/server.log" >&2; exit 1; }
        sleep 0.1
    done
    local url; url=$(cat "$work/data/endpoint")
    case $url in http*) ;; *) url=http://127.0.0.1:$url ;; esac
    "$bench" put --url "${url%/}/b" --create-bucket --objects 50 --size "$size" -c 1 \
        --header 'x-amz-acl: public-read' --timeout 300 > /dev/null
    "$bench" "$op" --url "${url%/}/b" --objects 50 --size "$size" -c 1 --count "$requests" \
        --timeout 300 "$@" > /dev/null
    kill -TERM "$pid"; wait "$pid" || true; pid=
    awk '/^(summary|totals):/ { print $2; exit }' "$work/out"
}

echo "| request ($size) | instructions each |"
echo "|---|---|"
for case in "GET unsigned|get --sign none" "GET signed in the header|get --sign header" \
            "GET presigned|get --sign presigned" "PUT signed in the header|put --sign header"; do
    read -r -a words <<< "${case#*|}"
    few=$(count "${words[0]}" "$short" "${words[@]:1}")
    many=$(count "${words[0]}" "$long" "${words[@]:1}")
    echo "| ${case%%|*} | $(( (many - few) / (long - short) )) |"
done
