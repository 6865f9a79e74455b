//! Decoding of Opus packets: the identification header of RFC 7845, and the samples.

use opus_pure::OpusMSDecoder;
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// Rate of the decoded audio.
pub(crate) const OPUS_RATE: u32 = 48_000;
/// Maximum number of frames of a packet: 120 ms.
const MAX_FRAMES: usize = 5760;

/// Decoder of the packets of a track.
pub(crate) struct OpusPackets {
    decoder: OpusMSDecoder,
    /// Frames to skip at the start.
    pub(crate) pre_skip: u16,
    /// Factor of all samples.
    gain: f32,
}

impl OpusPackets {
    /// Creates a decoder from an `OpusHead` header.
    pub(crate) fn new(header: &[u8]) -> Result<Self> {
        let Some((fixed, table)) = header.split_first_chunk::<19>() else {
            bail!(
                Format,
                "opus header of {} bytes, expected at least 19",
                header.len()
            );
        };
        let (channels, family) = (fixed[9], fixed[18]);
        let unsupported = |what: &str| {
            let message =
                format!("opus header: {channels} channels of mapping family {family}: {what}");
            Error::new(ErrorKind::Unsupported, message)
        };
        let decoder = OpusMSDecoder::new(OPUS_RATE.cast_signed(), usize::from(channels), family);
        let decoder = decoder.map_err(|e| unsupported(&e.to_string()))?;
        let layout = decoder.layout();
        let usual = [layout.nb_streams, layout.nb_coupled_streams];
        let stated = table.first_chunk::<2>().map(|t| t.map(usize::from));
        if family > 0 && stated != Some(usual) {
            return Err(unsupported("unusual assignment of channels to streams"));
        }
        let gain = f32::from(i16::from_le_bytes([fixed[16], fixed[17]])) / 256.0;
        Ok(Self {
            decoder,
            pre_skip: u16::from_le_bytes([fixed[10], fixed[11]]),
            gain: 10f32.powf(gain / 20.0),
        })
    }

    /// Number of channels.
    pub(crate) fn channels(&self) -> usize {
        self.decoder.channels()
    }

    /// Decodes a packet to interleaved samples. Returns `None` if the packet is damaged.
    pub(crate) fn decode(&mut self, packet: &[u8], samples: &mut Vec<f32>) -> Option<()> {
        samples.clear();
        // An empty packet means a lost packet to the decoder.
        if packet.is_empty() {
            return None;
        }
        samples.resize(MAX_FRAMES * self.channels(), 0.0);
        let decoded = self.decoder.decode(packet, MAX_FRAMES, samples);
        samples.truncate(
            decoded
                .as_ref()
                .map_or(0, |frames| frames * self.channels()),
        );
        samples.iter_mut().for_each(|x| *x *= self.gain);
        decoded.is_ok().then_some(())
    }
}
