//! The two decays of AdamW: an array read as the library reads one lets more numbers pass and forgets them.

use std::fmt;

use serde::de::{Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

/// Reads exactly two numbers.
pub(super) fn read<'de, D: Deserializer<'de>>(reader: D) -> Result<[f64; 2], D::Error> {
    reader.deserialize_tuple(2, Two)
}

struct Two;

impl<'de> Visitor<'de> for Two {
    type Value = [f64; 2];

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("two numbers, the decays of the first and of the second moment")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut betas = [0.0; 2];
        for (at, beta) in betas.iter_mut().enumerate() {
            let Some(read) = list.next_element()? else {
                return Err(A::Error::invalid_length(at, &self));
            };
            *beta = read;
        }
        let mut found = betas.len();
        while list.next_element::<IgnoredAny>()?.is_some() {
            found += 1;
        }
        if found > betas.len() {
            return Err(A::Error::invalid_length(found, &self));
        }
        Ok(betas)
    }
}

#[cfg(test)]
mod tests {
    use crate::job::JobFile;

    #[test]
    fn there_are_two_and_no_more() {
        let told = |betas: &str| {
            JobFile::parse(&format!(
                "model = 'm'\n[[job]]\nname = 'a'\nadapter = {{ method = 'ia3' }}\ndata = {{ train = 'a' }}\n\
                 optimizer = {{ betas = {betas} }}\n"
            ))
        };
        let two = told("[0.8, 0.9]").map(|file| file.jobs[0].optimizer.betas);
        assert_eq!(two, Ok([0.8, 0.9]));
        for (betas, count) in [("[0.9, 0.99, 0.999]", 3), ("[0.9]", 1), ("[]", 0)] {
            let message = told(betas).map_err(|error| error.to_string());
            let message = message.err().unwrap_or_default();
            assert!(
                message.starts_with("job[0].optimizer.betas: ")
                    && message.contains("line 6")
                    && message.contains(&format!("invalid length {count}, expected two numbers")),
                "{betas}: {message}"
            );
        }
    }
}
