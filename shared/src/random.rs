//! Counter-based randomness: every number is a function of who asks for it, never of the order of asking.
//!
//! Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11, section 3.3). The key
//! holds the job's seed and the [`Domain`]; the counter holds (element / 4, layer and site, sequence, step). So
//! a job draws the same dropout mask alone, in company, after a move and after a resume.

/// What a number is drawn for; domains never share a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Domain {
    /// Initial adapter weights.
    Init = 1,
    /// Dropout on an adapter's input.
    Dropout = 2,
    /// Order of rows in an epoch.
    Shuffle = 3,
    /// Choice of the next token.
    Sample = 4,
    /// Weights of a model made for tests and offline demos.
    TinyModel = 5,
    /// Which weights diff pruning may change.
    Mask = 6,
    /// Which rows are held out for evaluation.
    Split = 7,
    /// What happens in a simulated cluster.
    Simulation = 8,
    /// What happens in an invented spot market.
    Market = 9,
    /// What a market policy draws, and the noise that its judges add.
    Policy = 10,
}

/// One independent stream of numbers, addressed by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
    place: [u32; 3],
}

impl Stream {
    /// Opens the stream of `domain` for a job's `seed` at a `place`: by convention (layer and site, sequence, step).
    #[must_use]
    pub fn new(seed: u64, domain: Domain, place: [u32; 3]) -> Self {
        let mixed = split_mix(seed ^ (u64::from(domain as u32) << 56));
        Self {
            key: [mixed as u32, (mixed >> 32) as u32],
            place,
        }
    }

    /// Four words for elements `4 * block` to `4 * block + 3`.
    #[must_use]
    pub fn block(&self, block: u32) -> [u32; 4] {
        philox(
            self.key,
            [block, self.place[0], self.place[1], self.place[2]],
        )
    }

    /// The word of one element.
    #[must_use]
    pub fn word(&self, element: u32) -> u32 {
        self.block(element / 4)[(element % 4) as usize]
    }

    /// A number in [0, 1) with 24 random bits.
    #[must_use]
    pub fn uniform(&self, element: u32) -> f32 {
        unit(self.word(element))
    }

    /// A number in [0, 1) with 53 random bits, from elements `2 * index` and `2 * index + 1`.
    #[must_use]
    pub fn uniform64(&self, index: u32) -> f64 {
        let words = self.block(index / 2);
        let at = (index % 2) as usize * 2;
        let bits = ((u64::from(words[at]) << 32) | u64::from(words[at + 1])) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }

    /// A standard normal number (Box-Muller in f64, rounded once), the same on every machine: each stage makes its own.
    #[must_use]
    pub fn normal(&self, element: u32) -> f32 {
        let u = 1.0 - self.uniform64(2 * (element / 2));
        let angle = std::f64::consts::TAU * self.uniform64(2 * (element / 2) + 1);
        let radius = (-2.0 * libm::log(u)).sqrt();
        (radius
            * if element.is_multiple_of(2) {
                libm::cos(angle)
            } else {
                libm::sin(angle)
            }) as f32
    }

    /// An integer below `bound`, by the multiply-shift method (bias below `bound` / 2^64).
    ///
    /// # Panics
    /// When `bound` is zero.
    #[must_use]
    pub fn below(&self, index: u32, bound: u64) -> u64 {
        assert!(bound > 0, "a choice among nothing");
        let words = self.block(index);
        let word = (u64::from(words[0]) << 32) | u64::from(words[1]);
        ((u128::from(word) * u128::from(bound)) >> 64) as u64
    }

    /// Shuffles in place (Fisher-Yates); draw `i` of the stream decides position `i`.
    pub fn shuffle<T>(&self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let pick = self.below(last as u32, last as u64 + 1) as usize;
            items.swap(last, pick);
        }
    }
}

/// Maps a word to [0, 1) with 24 bits.
#[must_use]
pub fn unit(word: u32) -> f32 {
    (word >> 8) as f32 / (1u32 << 24) as f32
}

fn split_mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn philox(mut key: [u32; 2], mut counter: [u32; 4]) -> [u32; 4] {
    for _ in 0..10 {
        let a = u64::from(counter[0]) * 0xD251_1F53;
        let b = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [
            key[0].wrapping_add(0x9E37_79B9),
            key[1].wrapping_add(0xBB67_AE85),
        ];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with Random123 (philox4x32-10).
    #[test]
    fn known_answers() {
        assert_eq!(
            philox([0, 0], [0; 4]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox([u32::MAX; 2], [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn moments_are_those_of_the_distribution() {
        let stream = Stream::new(7, Domain::Init, [1, 2, 3]);
        let n = 20_000;
        let (mut mean, mut square, mut normal, mut spread) = (0.0, 0.0, 0.0, 0.0);
        for i in 0..n {
            let u = f64::from(stream.uniform(i));
            let z = f64::from(stream.normal(i));
            mean += u;
            square += u * u;
            normal += z;
            spread += z * z;
        }
        let n = f64::from(n);
        assert!((mean / n - 0.5).abs() < 0.01 && (square / n - 1.0 / 3.0).abs() < 0.01);
        assert!((normal / n).abs() < 0.03 && (spread / n - 1.0).abs() < 0.03);
    }

    #[test]
    fn a_shuffle_is_a_permutation_and_depends_on_the_place() {
        let order = |place| {
            let mut items: Vec<u32> = (0..100).collect();
            Stream::new(1, Domain::Shuffle, place).shuffle(&mut items);
            items
        };
        let mut sorted = order([0, 0, 0]);
        assert_ne!(sorted, order([0, 0, 1]));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }
}
