//! `goblin-store users` and `goblin-store keys`.
//!
//! A running server makes the changes itself; when none runs on the data directory, the catalog
//! is opened here.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::remote::Remote;
use crate::admin::directory::{self, Disabling, KeyView, NewKey, NewUser, UserView};
use crate::catalog::Catalog;
use crate::clock::SystemClock;
use crate::config::{self, Layer};
use crate::rng::Rng;
use crate::server;
use crate::server::data_dir::DataDir;

#[derive(clap::Args)]
struct Common {
    /// Data directory of the store
    #[arg(
        long,
        env = "GOBLIN_DATA_DIR",
        value_name = "DIR",
        default_value = "goblin-data",
        global = true
    )]
    data_dir: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Args)]
pub struct UsersArgs {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: UsersCommand,
}

#[derive(clap::Subcommand)]
enum UsersCommand {
    /// Add a user; give it key pairs with `keys add`
    Add {
        /// Name of the user: letters, digits and -_.@+=,
        id: String,
        /// What S3 shows as owner id [default: 64 random hex digits]
        #[arg(long, value_name = "ID")]
        canonical_id: Option<String>,
        /// What S3 shows as owner name [default: the user's name]
        #[arg(long, value_name = "NAME")]
        display_name: Option<String>,
        /// E-mail address
        #[arg(long, value_name = "ADDRESS")]
        email: Option<String>,
    },
    /// List all users
    List,
    /// Stop accepting all keys of a user; its buckets stay
    Disable {
        /// Name of the user
        id: String,
    },
    /// Accept the keys of a user again
    Enable {
        /// Name of the user
        id: String,
    },
}

#[derive(clap::Args)]
pub struct KeysArgs {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(clap::Subcommand)]
enum KeysCommand {
    /// Add a key pair to a user; the secret is shown this once
    Add {
        /// Name of the user
        user: String,
        /// Access key to use [default: a new one]
        #[arg(long, value_name = "KEY")]
        access_key: Option<String>,
        /// Secret key to use; other users of this machine can see it while the command runs
        /// [default: a new one]
        #[arg(long, value_name = "SECRET")]
        secret_key: Option<String>,
    },
    /// List all key pairs, without secrets
    List,
    /// Stop accepting a key pair
    Disable {
        /// Access key of the pair
        access_key: String,
    },
    /// Accept a key pair again
    Enable {
        /// Access key of the pair
        access_key: String,
    },
    /// Remove a key pair for good
    Remove {
        /// Access key of the pair
        access_key: String,
    },
}

/// Where users and keys are changed.
enum Access {
    Server(Remote),
    /// No server runs: the lock on the data directory is ours.
    Catalog(Arc<dyn Catalog>, Rng, #[expect(dead_code, reason = "holds the lock")] DataDir),
}

pub fn users(args: UsersArgs) -> anyhow::Result<()> {
    with_access(&args.common.data_dir.clone(), async |access| {
        let json = args.common.json;
        match args.command {
            UsersCommand::List => {
                let users: Vec<UserView> = match access {
                    Access::Server(s) => s.ask(Method::GET, "/admin/users", &()).await?,
                    Access::Catalog(c, ..) => directory::list_users(&**c).await?,
                };
                show(json, &users, || users.iter().map(user_line).collect())
            }
            UsersCommand::Add { id, canonical_id, display_name, email } => {
                let new = NewUser { id, canonical_id, display_name, email };
                let user = match access {
                    Access::Server(s) => s.ask(Method::POST, "/admin/users", &new).await?,
                    Access::Catalog(c, rng, _) => directory::add_user(&**c, rng, new).await?,
                };
                show(json, &user, || vec![user_line(&user)])
            }
            UsersCommand::Disable { id } => switch_user(access, json, &id, true).await,
            UsersCommand::Enable { id } => switch_user(access, json, &id, false).await,
        }
    })
}

pub fn keys(args: KeysArgs) -> anyhow::Result<()> {
    with_access(&args.common.data_dir.clone(), async |access| {
        let json = args.common.json;
        match args.command {
            KeysCommand::List => {
                let keys: Vec<KeyView> = match access {
                    Access::Server(s) => s.ask(Method::GET, "/admin/keys", &()).await?,
                    Access::Catalog(c, ..) => directory::list_keys(&**c).await?,
                };
                show(json, &keys, || keys.iter().map(key_line).collect())
            }
            KeysCommand::Add { user, access_key, secret_key } => {
                let new = NewKey { user, access_key, secret_key };
                let key = match access {
                    Access::Server(s) => s.ask(Method::POST, "/admin/keys", &new).await?,
                    Access::Catalog(c, rng, _) => directory::add_key(&**c, rng, new).await?,
                };
                show(json, &key, || vec![key_line(&key)])
            }
            KeysCommand::Disable { access_key } => {
                switch_key(access, json, &access_key, true).await
            }
            KeysCommand::Enable { access_key } => {
                switch_key(access, json, &access_key, false).await
            }
            KeysCommand::Remove { access_key } => match access {
                Access::Server(s) => {
                    s.ask(Method::DELETE, &path("/admin/keys", &access_key), &()).await
                }
                Access::Catalog(c, ..) => Ok(directory::remove_key(&**c, &access_key).await?),
            },
        }
    })
}

async fn switch_user(
    access: &mut Access,
    json: bool,
    id: &str,
    disabled: bool,
) -> anyhow::Result<()> {
    let user: UserView = match access {
        Access::Server(s) => {
            s.ask(Method::PATCH, &path("/admin/users", id), &Disabling { disabled }).await?
        }
        Access::Catalog(c, ..) => directory::set_user_disabled(&**c, id, disabled).await?,
    };
    show(json, &user, || vec![user_line(&user)])
}

async fn switch_key(
    access: &mut Access,
    json: bool,
    access_key: &str,
    disabled: bool,
) -> anyhow::Result<()> {
    let key: KeyView = match access {
        Access::Server(s) => {
            s.ask(Method::PATCH, &path("/admin/keys", access_key), &Disabling { disabled }).await?
        }
        Access::Catalog(c, ..) => directory::set_key_disabled(&**c, access_key, disabled).await?,
    };
    show(json, &key, || vec![key_line(&key)])
}

/// Runs `work` against the server of the data directory, or against its catalog.
fn with_access(
    data_dir: &Path,
    work: impl AsyncFnOnce(&mut Access) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Some(remote) = runtime.block_on(Remote::connect(data_dir))? {
        return runtime.block_on(work(&mut Access::Server(remote)));
    }
    anyhow::ensure!(
        data_dir.join("format").exists(),
        "{} holds no data of goblin-store; name the directory with --data-dir",
        data_dir.display()
    );
    let settings = config::load(Layer::default(), None)?;
    let (lock, rng) = (DataDir::open(data_dir)?, Rng::system());
    // Opened before the runtime is entered: the catalog blocks until its log is replayed.
    let catalog = server::open_catalog(&settings, &lock, Arc::new(SystemClock), rng.clone())?;
    runtime.block_on(async {
        let done = work(&mut Access::Catalog(catalog.clone(), rng, lock)).await;
        catalog.close().await;
        done
    })
}

fn path(collection: &str, name: &str) -> String {
    format!("{collection}/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

fn show(
    json: bool,
    value: &impl Serialize,
    lines: impl FnOnce() -> Vec<String>,
) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(value)?);
    } else {
        lines().iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}

fn user_line(user: &UserView) -> String {
    let state = if user.disabled { "disabled" } else { "enabled" };
    let email = if user.email.is_empty() { "-" } else { &user.email };
    format!("{}\t{state}\t{}\t{email}\t{}", user.id, user.canonical_id, user.display_name)
}

fn key_line(key: &KeyView) -> String {
    let state = if key.disabled { "disabled" } else { "enabled" };
    let secret = key.secret_key.as_deref().unwrap_or_default();
    format!("{}\t{}\t{state}\t{secret}", key.access_key, key.user).trim_end().to_owned()
}
