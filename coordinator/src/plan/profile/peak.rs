//! Profiles from published peak figures: a first guess, until a device is measured.
//!
//! Peaks are of the makers' data sheets, dense, without sparsity. What is reached of them is our assumption, stated
//! here: 65 % of the products' peak, 80 % of the memory's, 5 us for a launch, 1 GiB for driver and libraries.

use super::{Compute, FORMAT, Link, Origin, Profile, Reconfiguration, Roofline, VERSION};

/// Peak figures of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Its name.
    pub device: &'static str,
    /// bf16 products, dense, in operations a second.
    pub flops_per_second: u64,
    /// Memory, in bytes a second.
    pub bytes_per_second: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// To a device of the same machine, one way, in bytes a second.
    pub inside_bytes_per_second: u64,
}

impl Peak {
    /// NVIDIA A40: 149.7 TFLOP/s bf16, 696 GB/s, 48 GB; PCIe 4.0 x16 inside a machine (31.5 GB/s one way).
    pub const A40: Self = Self {
        device: "NVIDIA A40",
        flops_per_second: 149_700_000_000_000,
        bytes_per_second: 696_000_000_000,
        memory_bytes: 48_000_000_000,
        inside_bytes_per_second: 31_500_000_000,
    };
    /// NVIDIA A100 80 GB SXM: 312 TFLOP/s bf16, 2,039 GB/s; NVLink 300 GB/s one way.
    pub const A100: Self = Self {
        device: "NVIDIA A100 80GB",
        flops_per_second: 312_000_000_000_000,
        bytes_per_second: 2_039_000_000_000,
        memory_bytes: 80 << 30,
        inside_bytes_per_second: 300_000_000_000,
    };
    /// NVIDIA H100 SXM: 989 TFLOP/s bf16, 3,350 GB/s, 80 GB; NVLink 450 GB/s one way.
    pub const H100: Self = Self {
        device: "NVIDIA H100",
        flops_per_second: 989_000_000_000_000,
        bytes_per_second: 3_350_000_000_000,
        memory_bytes: 80 << 30,
        inside_bytes_per_second: 450_000_000_000,
    };
    /// NVIDIA GeForce RTX 4090: 165.2 TFLOP/s bf16, 1,008 GB/s, 24 GB; PCIe 4.0 x16 (31.5 GB/s one way).
    pub const RTX4090: Self = Self {
        device: "NVIDIA RTX 4090",
        flops_per_second: 165_200_000_000_000,
        bytes_per_second: 1_008_000_000_000,
        memory_bytes: 24 << 30,
        inside_bytes_per_second: 31_500_000_000,
    };
}

impl Profile {
    /// A profile computed from peaks.
    #[must_use]
    pub fn peak(peak: &Peak) -> Self {
        let link = |name: &str, latency_nanos, bytes_per_second| Link {
            name: name.to_owned(),
            latency_nanos,
            bytes_per_second,
        };
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            device: peak.device.to_owned(),
            compute: Compute::Bf16,
            origin: Origin::Computed,
            note: "from published peak figures".to_owned(),
            memory_bytes: peak.memory_bytes,
            workspace_bytes: 1 << 30,
            roofline: Some(Roofline {
                flops_per_second: peak.flops_per_second,
                bytes_per_second: peak.bytes_per_second,
                compute_permille: 650,
                memory_permille: 800,
                launch_nanos: 5_000,
            }),
            linear: Vec::new(),
            attention: Vec::new(),
            adapters: Vec::new(),
            stream: Vec::new(),
            links: vec![
                link("inside", 10_000, peak.inside_bytes_per_second),
                link("between", 30_000, 12_500_000_000),
            ],
            reconfiguration: Reconfiguration {
                attach_nanos: 50_000_000,
                switch_nanos: 2_000_000_000,
                load_bytes_per_second: 2_000_000_000,
            },
        }
    }
}
