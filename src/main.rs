//! The program: all of it is in `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    goblin_store::cli::main()
}
