//! Sizes as people write them: `48G`, `256K`, `1MiB`, `4096`.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. Suffixes K, M, G, T (also `KiB`, `KB`...) are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteSize, String> {
        let text = text.trim();
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, suffix) = text.split_at(digits);
        let shift = match suffix.trim().to_ascii_uppercase().as_str() {
            "" | "B" => 0,
            "K" | "KB" | "KIB" => 10,
            "M" | "MB" | "MIB" => 20,
            "G" | "GB" | "GIB" => 30,
            "T" | "TB" | "TIB" => 40,
            _ => return Err(explain(text)),
        };
        let number: u64 = number.parse().map_err(|_| explain(text))?;
        number
            .checked_mul(1 << shift)
            .map(ByteSize)
            .ok_or_else(|| format!("{text} is more than 16 EiB"))
    }
}

fn explain(text: &str) -> String {
    format!("{text:?} is not a size; write for example 4096, 256K, 1M or 48G")
}

impl fmt::Display for ByteSize {
    /// The shortest exact form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, suffix) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{suffix}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl<'de> serde::Deserialize<'de> for ByteSize {
    /// A TOML integer is bytes; a string may carry a suffix.
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<ByteSize, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Text(String),
        }
        match <Form as serde::Deserialize>::deserialize(d)? {
            Form::Number(bytes) => Ok(ByteSize(bytes)),
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(text.parse::<ByteSize>().ok().map(|s| s.0), expected, "{text:?}");
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        check("0", Some(0));
        check("4096", Some(4096));
        check("256K", Some(256 << 10));
        check("1m", Some(1 << 20));
        check("1MiB", Some(1 << 20));
        check("48G", Some(48 << 30));
        check(" 2 GB ", Some(2 << 30));
        check("3T", Some(3 << 40));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "K", "-1", "1.5G", "1X", "G1", "1 K K", "99999999999G", "٣"] {
            check(text, None);
        }
    }

    #[test]
    fn what_is_printed_parses_to_the_same() {
        for bytes in [0, 1, 1023, 1024, 1 << 20, 3 << 19, 48 << 30, u64::MAX] {
            check(&ByteSize(bytes).to_string(), Some(bytes));
        }
    }
}
