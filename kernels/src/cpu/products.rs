//! Which arithmetic the products with frozen weights use: a setting, since it decides the bits of a result.

use std::fmt;

/// Names the arithmetic of products with frozen weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Products {
    /// One chain of fused multiply-adds in single precision for each element.
    #[default]
    F32,
    /// Numbers as sums of three bf16, six partial products for each element, as AMX tiles add them
    /// (`docs/adr/0011-split-products.md`). The same bits on a processor without tiles, but slower there than `F32`.
    Split,
}

impl Products {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::F32, Self::Split];

    /// Returns the name: `f32` or `split`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Split => "split",
        }
    }
}

impl fmt::Display for Products {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
