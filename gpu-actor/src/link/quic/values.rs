//! Values as bytes and back: as they are, or as bf16 when a link is narrow.

use bytes::Bytes;
use half::bf16;
use shared::net::fault::NetError;
use shared::net::stream::Receiver;
use shared::wire::chunk::{ChunkDtype, checksum};

// The wire is little-endian, and so is every machine this runs on: no value is turned around.
const _: () = assert!(cfg!(target_endian = "little"));

/// Owns values while their bytes are under way.
struct Owned(Vec<f32>);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

struct OwnedNarrow(Vec<bf16>);

impl AsRef<[u8]> for OwnedNarrow {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// The bytes of values and their checksum; not copied, unless narrow.
pub(super) fn pack(values: Vec<f32>, dtype: ChunkDtype) -> (Bytes, u32) {
    let bytes = match dtype {
        ChunkDtype::F32 => Bytes::from_owner(Owned(values)),
        ChunkDtype::Bf16 => {
            let narrow = values.into_iter().map(bf16::from_f32).collect();
            Bytes::from_owner(OwnedNarrow(narrow))
        }
    };
    let sum = checksum(&bytes);
    (bytes, sum)
}

/// Reads so many values; with them the checksum of their bytes.
pub(super) async fn read(
    receiver: &mut Receiver,
    count: usize,
    dtype: ChunkDtype,
) -> Result<(Vec<f32>, u32), NetError> {
    match dtype {
        ChunkDtype::F32 => {
            let mut values = vec![0.0_f32; count];
            receiver
                .read_into(bytemuck::cast_slice_mut(&mut values), "chunk")
                .await?;
            let sum = checksum(bytemuck::cast_slice(&values));
            Ok((values, sum))
        }
        ChunkDtype::Bf16 => {
            let mut narrow = vec![bf16::ZERO; count];
            receiver
                .read_into(bytemuck::cast_slice_mut(&mut narrow), "chunk")
                .await?;
            let sum = checksum(bytemuck::cast_slice(&narrow));
            Ok((narrow.into_iter().map(bf16::to_f32).collect(), sum))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_values_keep_their_bits_and_narrow_ones_half_of_them() {
        let values = vec![1.0, -0.0, f32::NAN, 1.003_906_3, f32::MIN_POSITIVE];
        let (bytes, sum) = pack(values.clone(), ChunkDtype::F32);
        assert_eq!(&bytes[..], bytemuck::cast_slice::<f32, u8>(&values));
        assert_eq!(sum, checksum(&bytes));
        let (narrow, _) = pack(values, ChunkDtype::Bf16);
        assert_eq!(narrow.len(), 10);
        // 1 + 2^-8 lies halfway between two of bf16: to the even one.
        assert_eq!(narrow[6..8], bf16::ONE.to_le_bytes());
    }
}
