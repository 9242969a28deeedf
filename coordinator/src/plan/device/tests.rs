use shared::model::Projection;

use super::*;
use crate::plan::profile::{Adapter as Table, Attention, Linear, Peak};
use crate::plan::testing::llama_7b;

fn device(change: impl FnOnce(&mut Profile)) -> Result<Device, BadProfile> {
    let mut profile = Profile::peak(&Peak::A40);
    change(&mut profile);
    Device::new(&profile, &llama_7b(), Weights::Bf16, Weights::Bf16)
}

fn table(width: u64, nanos: u64) -> Table {
    Table {
        method: "lora".into(),
        width,
        out: 4096,
        input: 4096,
        forward: vec![(100, nanos), (1000, 10 * nanos)],
        backward: vec![(100, 2 * nanos)],
        utilisation: vec![(100, 200), (1000, 800)],
    }
}

#[test]
fn measured_tables_come_before_the_roofline() {
    let measured = device(|profile| {
        profile.linear.push(Linear {
            out: 4096,
            input: 4096,
            weights: Weights::Bf16,
            forward: vec![(1, 7_000_000)],
            backward: vec![(1, 7_000_000)],
        });
    })
    .expect("a device");
    let computed = device(|_| ()).expect("a device");
    // q, k, v and o have this shape; the others are still estimated.
    assert!(measured.block.forward.at(1) > computed.block.forward.at(1) + 27_000_000);
    assert_eq!(measured.estimated.len() + 4, computed.estimated.len());
}

#[test]
fn adapters_are_interpolated_by_width() {
    let device = device(|profile| profile.adapters = vec![table(16, 3_000), table(8, 1_000)]);
    let device = device.expect("a device");
    let site = Site::Linear(Projection::Q);
    let time = |width| device.adapter(&Adapter::lora(width), site, 100).time;
    let forward = [4, 8, 12, 16, 32].map(|width| time(width).forward);
    assert_eq!(forward, [1_000, 1_000, 2_000, 3_000, 6_000]);
    let at = device.adapter(&Adapter::lora(8), site, 550);
    assert_eq!((at.time.forward, at.busy.forward), (5_500, 2_750));
}

#[test]
fn attention_is_interpolated_by_length() {
    let entry = |length, nanos| Attention {
        heads: 32,
        kv_heads: 32,
        head_dim: 128,
        length,
        forward: vec![(1, 1_000), (1024, nanos)],
        backward: vec![(1, 2_000), (1024, 2 * nanos)],
    };
    let device = device(|profile| profile.attention = vec![entry(128, 10_000), entry(512, 40_000)]);
    let device = device.expect("a device");
    let at = |length| device.attention(length, 1024).forward + device.attention_floor.forward;
    assert_eq!(
        [64, 128, 320, 512, 1024].map(at),
        [10_000, 10_000, 25_000, 40_000, 80_000]
    );
}

#[test]
fn what_is_nowhere_is_named() {
    let said = device(|profile| profile.roofline = None).expect_err("nothing is measured");
    assert!(
        matches!(&said, BadProfile::Unmeasured { key, .. } if key == "stream"),
        "{said}"
    );
    let said = device(|profile| {
        profile.roofline = None;
        profile.stream = vec![(1, 1)];
    });
    let said = said.expect_err("no product is measured").to_string();
    assert!(
        said.contains("linear 4096x4096 bf16") && said.contains("NVIDIA A40"),
        "{said}"
    );
}
