//! An interpreter that has the PEFT library.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

const NEEDS: &str = "import torch, transformers, peft, safetensors";

/// Finds an interpreter with torch, transformers and peft: the one named, or `python3`.
pub(super) fn find(named: Option<&Path>) -> Result<PathBuf> {
    let python = named.unwrap_or_else(|| Path::new("python3"));
    let tried = Command::new(python)
        .args(["-c", NEEDS])
        .stdin(Stdio::null())
        .output();
    let reason = match tried {
        Ok(output) if output.status.success() => return Ok(python.to_owned()),
        Ok(output) => String::from_utf8_lossy(&output.stderr)
            .lines()
            .last()
            .unwrap_or("it ended without a word")
            .to_owned(),
        Err(error) => error.to_string(),
    };
    bail!(
        "{} has no PEFT library ({reason}).\n\
         Several gigabytes install it:\n  \
         python3 -m venv ~/peft && ~/peft/bin/pip install torch transformers peft safetensors\n  \
         cargo xtask bench-peer --python ~/peft/bin/python",
        python.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_interpreter_is_told_with_the_remedy() {
        let error = find(Some(Path::new("/no/such/python"))).unwrap_err();
        assert!(error.to_string().contains("pip install torch"), "{error}");
    }
}
