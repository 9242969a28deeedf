//! Values as bytes and back: as they are, or as bf16 when a link is narrow.

use std::sync::Arc;

use bytes::Bytes;
use half::bf16;
use shared::net::fault::NetError;
use shared::net::stream::Receiver;
use shared::wire::chunk::{Checksum, ChunkDtype, checksum};

use super::pool::{Lent, Pool};

// The wire is little-endian, and so is every machine this runs on: no value is turned around.
const _: () = assert!(cfg!(target_endian = "little"));

struct OwnedNarrow(Vec<bf16>);

impl AsRef<[u8]> for OwnedNarrow {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// The bytes of values and their checksum; not copied, unless narrow. Sent, their buffer is the pool's.
pub(super) fn pack(values: Vec<f32>, dtype: ChunkDtype, pool: &Arc<Pool>) -> (Bytes, u32) {
    let values = Lent::new(values, pool);
    let bytes = match dtype {
        ChunkDtype::F32 => Bytes::from_owner(values),
        ChunkDtype::Bf16 => {
            let wide: &[f32] = bytemuck::cast_slice(values.as_ref());
            let narrow = wide.iter().copied().map(bf16::from_f32).collect();
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
    pool: &Pool,
) -> Result<(Vec<f32>, u32), NetError> {
    let mut values = pool.take(count);
    let sum = match dtype {
        ChunkDtype::F32 => fill(receiver, bytemuck::cast_slice_mut(&mut values)).await?,
        ChunkDtype::Bf16 => {
            let mut narrow = vec![bf16::ZERO; count];
            let sum = fill(receiver, bytemuck::cast_slice_mut(&mut narrow)).await?;
            for (value, narrow) in values.iter_mut().zip(narrow) {
                *value = narrow.to_f32();
            }
            sum
        }
    };
    Ok((values, sum))
}

/// Reads until the buffer is full; the checksum is made of bytes that are still at hand.
async fn fill(receiver: &mut Receiver, mut rest: &mut [u8]) -> Result<u32, NetError> {
    let mut sum = Checksum::default();
    while !rest.is_empty() {
        let read = receiver.read_some(rest, "chunk").await?;
        sum.add(&rest[..read]);
        rest = &mut rest[read..];
    }
    Ok(sum.made())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_values_keep_their_bits_and_narrow_ones_half_of_them() {
        let values = vec![1.0, -0.0, f32::NAN, 1.003_906_3, f32::MIN_POSITIVE];
        let pool = Pool::new(1);
        let (bytes, sum) = pack(values.clone(), ChunkDtype::F32, &pool);
        assert_eq!(&bytes[..], bytemuck::cast_slice::<f32, u8>(&values));
        let mut pieces = Checksum::default();
        bytes.chunks(7).for_each(|piece| pieces.add(piece));
        assert_eq!((sum, pieces.made()), (checksum(&bytes), sum));
        let (narrow, _) = pack(values, ChunkDtype::Bf16, &pool);
        assert_eq!(narrow.len(), 10);
        // 1 + 2^-8 lies halfway between two of bf16: to the even one.
        assert_eq!(narrow[6..8], bf16::ONE.to_le_bytes());
    }
}
