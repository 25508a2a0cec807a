//! The command line: one file per subcommand.
//!
//! Owns arguments, exit codes and what is printed. Everything else is in the library: `serve`
//! hands over to `server`, `users` and `keys` to the admin API of a running server or, when none
//! runs, to the catalog.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod backup;
mod check;
mod directory;
mod doctor;
mod offline;
mod remote;
mod scrub;
mod serve;

/// A self-hosted, S3-compatible object store for one strong machine.
#[derive(Parser)]
#[command(name = "goblin-store", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve S3. Needs no configuration; each setting is a flag, a variable or a line of a file
    Serve(Box<serve::ServeArgs>),
    /// Add, list, disable and enable users
    Users(directory::UsersArgs),
    /// Add, list, disable, enable and remove key pairs
    Keys(directory::KeysArgs),
    /// Say what this machine gives, what is missing and what to do about it
    Doctor(Box<doctor::DoctorArgs>),
    /// Compare the catalog of a stopped store with itself and with the disk, both ways
    Check(check::CheckArgs),
    /// Read every stored byte and verify its checksum; beside a running server or without one
    Scrub(scrub::ScrubArgs),
    /// Copy the catalog and everything that it refers to, as it is at one commit
    Backup(backup::BackupArgs),
    /// Fill a new data directory from a backup
    Restore(backup::RestoreArgs),
    /// Make a lost or damaged catalog again, from its snapshots and the commit log
    Recover(check::RecoverArgs),
}

/// Runs the command that the arguments name. 0: done, 1: it failed, 2: wrong arguments.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(*args).map(|()| ExitCode::SUCCESS),
        Command::Users(args) => directory::users(args).map(|()| ExitCode::SUCCESS),
        Command::Keys(args) => directory::keys(args).map(|()| ExitCode::SUCCESS),
        Command::Doctor(args) => doctor::run(*args),
        Command::Check(args) => check::check(args),
        Command::Scrub(args) => scrub::run(args),
        Command::Backup(args) => backup::backup(args),
        Command::Restore(args) => backup::restore(args),
        Command::Recover(args) => check::recover(args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("goblin-store: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_argument_and_command_explains_itself() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                let id = argument.get_id();
                assert!(argument.get_help().is_some(), "{} {id}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn every_setting_has_a_flag_and_a_variable_of_its_name() {
        let command = Cli::command();
        let serve = command.find_subcommand("serve").expect("is there");
        for name in crate::config::Layer::names() {
            let flag = serve.get_arguments().find(|a| a.get_long() == Some(name.as_str()));
            let flag = flag.unwrap_or_else(|| panic!("--{name} is missing"));
            let variable = format!("GOBLIN_{}", name.replace('-', "_").to_ascii_uppercase());
            let env = flag.get_env().and_then(|env| env.to_str());
            assert_eq!(env, Some(variable.as_str()));
        }
    }
}
