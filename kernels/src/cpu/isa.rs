//! Which vector instructions this machine has, and the one way to run code compiled for them.
//!
//! An [`Isa`] can only be had from detection, so that holding one proves that the processor has the instructions:
//! this is what makes the macro `isa_dispatch!` sound.
#![allow(
    unsafe_code,
    reason = "calls functions compiled for detected instructions"
)]

use std::fmt;

use super::tiles::Tiles;

/// Names a set of vector instructions that this processor has, with tiles or without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Isa {
    kind: Kind,
    tiles: Option<Tiles>,
}

/// The sets with code of their own, widest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// AVX-512 F, BW, VL and DQ.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What every processor has; fused multiply-add by library call where need be.
    Portable,
}

impl Isa {
    /// Returns the widest set that this processor has.
    pub fn best() -> Self {
        Self::available()[0]
    }

    /// Returns all sets that this processor has, widest first; the last is the portable one.
    pub fn available() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq");
            if avx512 {
                if let Some(tiles) = Tiles::detect() {
                    let (kind, tiles) = (Kind::Avx512, Some(tiles));
                    found.push(Self { kind, tiles });
                }
                found.push(Self::plain(Kind::Avx512));
            }
            if avx2 {
                found.push(Self::plain(Kind::Avx2));
            }
        }
        found.push(Self::portable());
        found
    }

    /// Returns the set that every processor has.
    pub fn portable() -> Self {
        Self::plain(Kind::Portable)
    }

    fn plain(kind: Kind) -> Self {
        Self { kind, tiles: None }
    }

    /// Returns the proof of tiles, where they are part of the set.
    pub(crate) fn tiles(self) -> Option<Tiles> {
        self.tiles
    }

    /// Returns which set this is.
    pub(crate) fn kind(self) -> Kind {
        self.kind
    }

    /// Returns the name of the set: `amx`, `avx512`, `avx2` or `portable`.
    pub fn name(self) -> &'static str {
        match self.kind {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 if self.tiles.is_some() => "amx",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            Kind::Portable => "portable",
        }
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Defines `fn name(isa: Isa, arguments...)` that runs `body(arguments...)` compiled for the instructions of `isa`.
///
/// The body is an ordinary `#[inline(always)]` function over slices and arrays that uses `f32::mul_add`; it is
/// compiled once per set, and the compiler turns its loops into that set's vectors. What it calls must be
/// `#[inline(always)]` too: a function of its own is compiled without the instructions.
///
/// ```text
/// isa_dispatch! {
///     /// Adds `x` to `y`.
///     pub(crate) fn add(y: &mut [f32], x: &[f32]) = add_body;
/// }
/// add(cpu.isa(), y, x);
/// ```
macro_rules! isa_dispatch {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:path;
    ) => {
        $(#[$meta])*
        #[allow(unsafe_code, reason = "an Isa proves that its instructions exist")]
        #[allow(clippy::too_many_arguments, reason = "mirrors the body")]
        $vis fn $name(isa: $crate::cpu::isa::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
            fn avx512($($arg: $ty),*) $(-> $ret)? {
                $body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                $body($($arg),*)
            }
            match isa.kind() {
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::isa::Kind::Avx512 => {
                    // SAFETY: an `Isa` of this kind is only made after its instructions were detected.
                    unsafe { avx512($($arg),*) }
                }
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::isa::Kind::Avx2 => {
                    // SAFETY: an `Isa` of this kind is only made after its instructions were detected.
                    unsafe { avx2($($arg),*) }
                }
                $crate::cpu::isa::Kind::Portable => $body($($arg),*),
            }
        }
    };
}
pub(crate) use isa_dispatch;

#[cfg(test)]
mod tests {
    use super::*;

    isa_dispatch! {
        /// Multiplies and adds.
        fn multiply_add(y: &mut [f32], x: &[f32], factor: f32) -> usize = multiply_add_body;
    }

    #[inline(always)]
    fn multiply_add_body(y: &mut [f32], x: &[f32], factor: f32) -> usize {
        for (y, x) in y.iter_mut().zip(x) {
            *y = factor.mul_add(*x, *y);
        }
        y.len()
    }

    #[test]
    fn all_sets_give_the_same_bits() {
        let x: Vec<f32> = (0..67u8).map(|i| (f32::from(i) * 0.37).sin()).collect();
        let mut wanted = x.clone();
        multiply_add_body(&mut wanted, &x, 0.3);
        for isa in Isa::available() {
            let mut y = x.clone();
            assert_eq!(multiply_add(isa, &mut y, &x, 0.3), 67);
            assert_eq!(y, wanted, "{isa}");
        }
    }

    #[test]
    fn the_portable_set_is_always_last() {
        assert_eq!(Isa::available().last(), Some(&Isa::portable()));
        assert_eq!(Isa::best(), Isa::available()[0]);
    }
}
