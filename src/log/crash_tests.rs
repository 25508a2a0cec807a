//! Crash and error tests on the simulated disk.
