//! The arithmetic of frozen products: the word of a setting, and what the device calls it.

use kernels::cpu::{self, Cpu};
use shared::job::Products;

/// Sets a device to what a setting says.
#[must_use]
pub fn set(cpu: Cpu, products: Products) -> Cpu {
    cpu.with_products(match products {
        Products::F32 => cpu::Products::F32,
        Products::Split => cpu::Products::Split,
    })
}

/// Returns what a device is set to.
#[must_use]
pub fn of(cpu: &Cpu) -> Products {
    match cpu.products() {
        cpu::Products::F32 => Products::F32,
        cpu::Products::Split => Products::Split,
    }
}
