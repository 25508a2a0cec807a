//! Random bytes: ids of blobs and uploads, key pairs, request ids.
//!
//! Owns the only call for entropy. Everything that needs randomness takes an `Rng`, so that a
//! simulation can hand in a seeded one and repeat a run. Leaf: imports nothing of ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of random bytes, cheap to clone, usable from any thread.
#[derive(Clone, Debug)]
pub struct Rng(Source);

#[derive(Clone, Debug)]
enum Source {
    /// getrandom(2).
    System,
    /// SplitMix64 over a shared counter: repeatable, never for secrets.
    Seeded(Arc<AtomicU64>),
}

/// Letters and digits that look different from each other in every font.
const ACCESS_KEY_ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const SECRET_KEY_ALPHABET: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Length of a generated access key, as AWS has it.
pub const ACCESS_KEY_CHARS: usize = 20;
/// Length of a generated secret key, as AWS has it: 240 random bits.
pub const SECRET_KEY_CHARS: usize = 40;

impl Rng {
    /// Randomness from the operating system, fit for secrets.
    pub fn system() -> Rng {
        Rng(Source::System)
    }

    /// The same bytes for the same seed; for tests and simulations only.
    pub fn seeded(seed: u64) -> Rng {
        Rng(Source::Seeded(Arc::new(AtomicU64::new(seed))))
    }

    /// Fills `out`.
    ///
    /// **Errors** None: a kernel without getrandom(2) cannot run this program, so that failure
    /// stops it rather than hand out an id that might repeat.
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the kernel")]
    pub fn fill(&self, out: &mut [u8]) {
        match &self.0 {
            Source::System => {
                getrandom::fill(out).expect("getrandom(2) always succeeds on Linux 3.17 and later")
            }
            Source::Seeded(state) => {
                for chunk in out.chunks_mut(8) {
                    let word = splitmix64(state).to_le_bytes();
                    chunk.copy_from_slice(&word[..chunk.len()]);
                }
            }
        }
    }

    /// `N` random bytes.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut out = [0u8; N];
        self.fill(&mut out);
        out
    }

    /// A new access key of 20 capitals and digits (100 random bits).
    pub fn access_key(&self) -> String {
        self.bytes::<ACCESS_KEY_CHARS>()
            .iter()
            .map(|b| char::from(ACCESS_KEY_ALPHABET[usize::from(*b) % ACCESS_KEY_ALPHABET.len()]))
            .collect()
    }

    /// A new secret key of 40 base64 characters (240 random bits).
    pub fn secret_key(&self) -> String {
        self.bytes::<SECRET_KEY_CHARS>()
            .iter()
            .map(|b| char::from(SECRET_KEY_ALPHABET[usize::from(*b) % SECRET_KEY_ALPHABET.len()]))
            .collect()
    }

    /// A new canonical user id: 64 hex digits, as S3 shows them.
    pub fn canonical_id(&self) -> String {
        hex::encode(self.bytes::<32>())
    }
}

/// **Source** Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014.
fn splitmix64(state: &AtomicU64) -> u64 {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut z = state.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_seeds_differ() {
        let run = |seed| {
            let rng = Rng::seeded(seed);
            (rng.bytes::<16>(), rng.bytes::<5>())
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn keys_have_the_lengths_and_letters_of_aws() {
        let rng = Rng::system();
        let access = rng.access_key();
        assert_eq!(access.len(), 20);
        assert!(access.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()));
        assert_eq!(rng.secret_key().len(), 40);
        assert_eq!(rng.canonical_id().len(), 64);
        assert_ne!(rng.secret_key(), rng.secret_key());
    }
}
