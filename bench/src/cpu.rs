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

/// CPU time of all threads that the processes have now, in total. What a thread used that has
/// ended is not in it: made for servers with threads that stay.
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
        let before = of_this_thread();
        let mut x = 1u64;
        while of_this_thread() - before < Duration::from_millis(5) {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        // Another process, because threads of this one end while it is looked at.
        let mut busy = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("a shell");
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let mut spent = Duration::ZERO;
        while spent < Duration::from_millis(30) && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            spent = of_processes(&[busy.id()]).expect("readable");
        }
        busy.kill().expect("ends");
        busy.wait().expect("ended");
        assert!(spent >= Duration::from_millis(30), "{spent:?}");
        assert!(of_processes(&[busy.id()]).is_err(), "it is gone");
    }
}
