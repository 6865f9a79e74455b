//! Rates of graphics cards.

/// A card, and the compiler whose code it runs.
#[derive(Debug)]
pub struct Card {
    /// Name in tables.
    pub name: &'static str,
    /// Name of its processor for `RADV_FORCE_FAMILY`, or the architecture for NAK.
    pub family: &'static str,
    /// Number of schedulers: SIMDs of AMD, partitions of the multiprocessors of NVIDIA.
    pub simds: f64,
    /// Boost clock in GHz.
    pub clock: f64,
    /// Memory rate in GB/s.
    pub memory: f64,
    /// Multiply-adds of one SIMD per cycle: in f32, of bytes, of f16 matrices with f32 sums.
    pub multiply_adds: [f64; 3],
}

/// Clocks, units and memory rates: AMD's product pages and NVIDIA's GA102 whitepaper.
/// Multiply-adds per cycle: an instruction starts 32 lanes per cycle, since RDNA 3 two in f32 at a time; dp4a of GA102
/// runs at half rate (CUDA programming guide, throughput of arithmetic instructions). Matrices per compute unit of two
/// SIMDs: 512 FLOP per cycle at f16 on RDNA 3 (AMD, "How to accelerate AI applications on RDNA 3 using WMMA"), 1,024 on
/// RDNA 4 ("Using the Matrix Cores of AMD RDNA 4 architecture GPUs"; product page: 145 TFLOP/s without sparsity); 512
/// per multiprocessor of four partitions for f32 sums of GA102.
pub const CARDS: [Card; 4] = [
    Card {
        name: "RX 6800",
        family: "navi21",
        simds: 120.0,
        clock: 2.105,
        memory: 512.0,
        multiply_adds: [32.0, 128.0, 0.0],
    },
    Card {
        name: "RX 7900 XTX",
        family: "navi31",
        simds: 192.0,
        clock: 2.5,
        memory: 960.0,
        multiply_adds: [64.0, 128.0, 128.0],
    },
    Card {
        name: "RX 9070",
        family: "gfx1201",
        simds: 112.0,
        clock: 2.52,
        memory: 640.0,
        multiply_adds: [64.0, 128.0, 256.0],
    },
    Card {
        name: "RTX 3090",
        family: "ampere",
        simds: 328.0,
        clock: 1.695,
        memory: 936.0,
        multiply_adds: [32.0, 64.0, 64.0],
    },
];

impl Card {
    /// Returns the card of a family.
    pub fn of(family: &str) -> Option<&'static Self> {
        CARDS.iter().find(|card| card.family == family)
    }

    /// Bytes of memory per cycle of a SIMD.
    pub fn bytes_per_cycle(&self) -> f64 {
        self.memory / (self.simds * self.clock)
    }
}
