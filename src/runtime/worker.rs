//! One pinned thread per core, each with its own io_uring runtime.
//!
//! Owns the choice of processors and the start of threads. What runs on a worker stays on it:
//! nothing is stolen, nothing is locked between workers on the hot path.

use std::future::Future;
use std::io;
use std::thread::JoinHandle;

use tokio::sync::mpsc::UnboundedSender;

use crate::config::RuntimeSettings;
use crate::sys::{cpu, uring};

/// Where a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Counts from 0.
    pub worker: usize,
    /// The kernel's number of the processor.
    pub cpu: usize,
}

/// Workers that cannot be placed as configured.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    #[error("cannot read which processors this process may use: {0}")]
    Affinity(#[source] io::Error),
    #[error("--numa {node}: cannot read the processors of the node: {source}")]
    Node { node: u32, source: io::Error },
    #[error("--numa {node}: this process may use none of the node's processors")]
    EmptyNode { node: u32 },
    #[error("--cores {wanted}: only {available} processors are available; ask for fewer")]
    TooFew { wanted: usize, available: usize },
}

/// One worker for each processor that the settings allow.
pub fn place(settings: &RuntimeSettings) -> Result<Vec<Placement>, PlacementError> {
    let allowed = cpu::allowed().map_err(PlacementError::Affinity)?;
    let on_node = settings
        .numa_node
        .map(|node| cpu::of_node(node).map_err(|source| PlacementError::Node { node, source }))
        .transpose()?;
    choose(&allowed, on_node.as_deref(), settings)
}

fn choose(
    allowed: &[usize],
    on_node: Option<&[usize]>,
    settings: &RuntimeSettings,
) -> Result<Vec<Placement>, PlacementError> {
    let usable = |cpu: &usize| on_node.is_none_or(|node| node.contains(cpu));
    let cpus: Vec<usize> = allowed.iter().copied().filter(usable).collect();
    if let (Some(node), true) = (settings.numa_node, cpus.is_empty()) {
        return Err(PlacementError::EmptyNode { node });
    }
    let wanted = settings.cores.unwrap_or(cpus.len());
    if wanted > cpus.len() {
        return Err(PlacementError::TooFew { wanted, available: cpus.len() });
    }
    Ok(cpus
        .into_iter()
        .take(wanted)
        .enumerate()
        .map(|(worker, cpu)| Placement { worker, cpu })
        .collect())
}

/// A worker that ended: its number and how.
pub type Ended = (usize, Result<(), String>);

/// Starts a worker that runs the future that `body` makes, and reports when it ends, also when it
/// panics: a server that lost a worker would answer some clients only.
///
/// **Errors** when the thread cannot be started.
pub fn start<B, F>(
    placement: Placement,
    ended: UnboundedSender<Ended>,
    body: B,
) -> io::Result<JoinHandle<()>>
where
    B: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<(), String>>,
{
    let name = format!("worker-{}", placement.worker);
    std::thread::Builder::new().name(name).spawn(move || {
        let run = || {
            cpu::pin_current_thread(placement.cpu)
                .map_err(|e| format!("cannot run on processor {}: {e}", placement.cpu))?;
            uring::run(async { body().await }).map_err(|e| e.to_string())?
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        let result = result.unwrap_or_else(|_| Err("a worker panicked".to_owned()));
        // Nobody listens only when the process is ending anyway.
        let _ = ended.send((placement.worker, result));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(numa: Option<u32>, cores: Option<usize>) -> Result<Vec<usize>, String> {
        let node = [4, 5, 6, 7];
        let on_node = numa.map(|n| if n == 1 { &node[..] } else { &[] });
        choose(&[0, 1, 4, 5, 6], on_node, &RuntimeSettings { numa_node: numa, cores })
            .map(|places| places.iter().map(|p| p.cpu).collect())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn every_allowed_processor_by_default() {
        assert_eq!(check(None, None), Ok(vec![0, 1, 4, 5, 6]));
    }

    #[test]
    fn a_node_and_a_count_narrow_the_choice() {
        assert_eq!(check(Some(1), None), Ok(vec![4, 5, 6]));
        assert_eq!(check(Some(1), Some(2)), Ok(vec![4, 5]));
        assert_eq!(check(None, Some(1)), Ok(vec![0]));
    }

    #[test]
    fn too_many_or_none_is_an_error_that_says_so() {
        assert!(check(None, Some(6)).expect_err("too many").contains("only 5"));
        assert!(check(Some(2), None).expect_err("none").contains("--numa 2"));
    }

    #[test]
    fn a_panic_is_reported() {
        let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
        let placement = place(&RuntimeSettings::default()).expect("a processor")[0];
        let worker = start(placement, sender, || async { panic!("on purpose") }).expect("starts");
        worker.join().expect("the panic was caught");
        assert!(matches!(ended.try_recv(), Ok((0, Err(_)))));
    }
}
