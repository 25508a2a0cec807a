//! `goblin-store serve`.

use std::path::PathBuf;

use crate::config::{self, Layer};
use crate::server::{self, credentials};

#[derive(clap::Args)]
#[command(after_help = "GOBLIN_ROOT_ACCESS_KEY and GOBLIN_ROOT_SECRET_KEY set the root key pair; \
without them one is made and kept in DATA-DIR/credentials. A flag wins over the environment, \
the environment over the file. Sizes: 4096, 256K, 1M, 48G.")]
pub struct ServeArgs {
    /// TOML file with settings, named as the flags are (http-port = 9000)
    #[arg(long, env = "GOBLIN_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Layer,
}

pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    config::names_of_environment(names)?;
    let settings = config::load(args.settings, args.config.as_deref())?;
    crate::logging::start(&settings.log).map_err(anyhow::Error::msg)?;
    let root = credentials::given(
        std::env::var("GOBLIN_ROOT_ACCESS_KEY").ok(),
        std::env::var("GOBLIN_ROOT_SECRET_KEY").ok(),
    )?;
    Ok(server::serve(settings, root)?)
}
