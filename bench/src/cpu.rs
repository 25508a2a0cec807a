//! CPU time: of the calling thread, and of other processes such as the server under test.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// CPU time that the calling thread has used, user and kernel. Work that the kernel does for
/// it in interrupts counts when it happens on its time.
pub fn of_this_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Lets the calling thread run on `cpu` only.
pub fn pin_this_thread(cpu: usize) -> Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        bail!("there is no processor {cpu}");
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("pinning to processor {cpu}"))
}

/// CPU time of all threads that the processes have now, in total.
///
/// **Source** the first number of /proc/PID/task/TID/schedstat, in nanoseconds.
pub fn of_processes(pids: &[u32]) -> Result<Duration> {
    let mut total = Duration::ZERO;
    for pid in pids {
        let dir = format!("/proc/{pid}/task");
        let tasks = std::fs::read_dir(&dir).with_context(|| format!("reading {dir}"))?;
        for task in tasks {
            // A thread may end while it is looked at.
            let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else {
                continue;
            };
            let first = text.split_whitespace().next().and_then(|n| n.parse().ok());
            total += Duration::from_nanos(first.context("a schedstat begins with a number")?);
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_cpu_time() {
        let pids = [std::process::id()];
        let (thread, process) = (of_this_thread(), of_processes(&pids).expect("readable"));
        let mut x = 1u64;
        while of_this_thread() - thread < Duration::from_millis(30) {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        // The kernel brings schedstat up to date at its ticks, at least every 10 ms.
        let spent = of_processes(&pids).expect("readable") - process;
        assert!(spent >= Duration::from_millis(15), "{spent:?}");
    }
}
