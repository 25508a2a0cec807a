//! Synthetic web traffic with a published shape: sizes with a median of 27 KiB of which 90% lie
//! below 193 KiB, a long tail, and objects asked for again as Zipf's law has it.
//!
//! Pure computation from a seed; writes nothing.

use anyhow::{Result, bail};

use crate::plan::{Object, Op, Plan, Row};
use crate::rng::Rng;

/// The published figures, in bytes.
const MEDIAN_BYTES: f64 = 27.0 * 1024.0;
const P90_BYTES: f64 = 193.0 * 1024.0;
/// The normal distribution's 90th percentile.
const Z90: f64 = 1.281_551_565_5;

/// What to make.
pub struct Shape {
    pub objects: usize,
    pub requests: usize,
    /// No object is larger, in bytes.
    pub size_max: u64,
    /// Exponent of popularity: the object of rank r is asked for in proportion to r^-exponent.
    pub zipf: f64,
    pub seed: u64,
}

/// A population and the order in which it is read.
///
/// Sizes follow a log-normal distribution through the two published points, which also has the
/// long tail. Popularity is independent of size.
pub fn make(shape: &Shape, prefix: &str) -> Result<Plan> {
    if shape.objects == 0 || shape.objects > u32::MAX as usize || shape.requests == 0 {
        bail!("a trace needs objects and requests");
    }
    let sigma = (P90_BYTES / MEDIAN_BYTES).ln() / Z90;
    let mut rng = Rng::new(shape.seed);
    let objects: Vec<Object> = (0..shape.objects)
        .map(|i| {
            let bytes = MEDIAN_BYTES * (sigma * rng.normal()).exp();
            Object {
                key: format!("{prefix}{i:08}"),
                bytes: (bytes as u64).clamp(1, shape.size_max),
            }
        })
        .collect();
    // Objects are made in random order of size already, so their number can be their rank.
    let mut sums = Vec::with_capacity(objects.len());
    let mut sum = 0.0;
    for rank in 1..=objects.len() {
        sum += (rank as f64).powf(-shape.zipf);
        sums.push(sum);
    }
    let rows = (0..shape.requests)
        .map(|_| {
            let at = rng.unit() * sum;
            let object = sums.partition_point(|s| *s <= at).min(objects.len() - 1) as u32;
            Row { op: Op::Get, object }
        })
        .collect();
    Ok(Plan { objects, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(seed: u64) -> Shape {
        Shape { objects: 20_000, requests: 50_000, size_max: 1 << 30, zipf: 0.9, seed }
    }

    #[test]
    fn the_published_shape_comes_out() {
        let plan = make(&shape(1), "t/").expect("a trace");
        let mut sizes: Vec<_> = plan.objects.iter().map(|o| o.bytes as f64).collect();
        sizes.sort_by(f64::total_cmp);
        let median = sizes[sizes.len() / 2] / MEDIAN_BYTES;
        let p90 = sizes[sizes.len() * 9 / 10] / P90_BYTES;
        assert!((0.95..1.05).contains(&median), "{median}");
        assert!((0.93..1.07).contains(&p90), "{p90}");
        assert!(sizes[sizes.len() - 1] > 4e6, "a long tail");
        let mut counts = vec![0u32; plan.objects.len()];
        plan.rows.iter().for_each(|r| counts[r.object as usize] += 1);
        assert!(counts[0] > 10 * counts[100].max(1), "popular objects repeat");
        assert!(counts.iter().filter(|c| **c == 0).count() > 1000, "others are never asked for");
    }

    #[test]
    fn a_seed_stands_for_one_trace() {
        let (a, b) = (make(&shape(5), "t").expect("a"), make(&shape(5), "t").expect("b"));
        assert_eq!((&a.objects, &a.rows), (&b.objects, &b.rows));
        assert_ne!(a.objects, make(&shape(6), "t").expect("c").objects);
    }
}
