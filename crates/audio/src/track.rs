//! Decoding of one track: selection of the track and its decoder, and removal of the samples that an
//! encoder adds at both ends.

use crate::convert::MAX_CHANNELS;
use crate::mp4::Edit;
use crate::opus::{OPUS_RATE, OpusPackets};
use crate::source::{Container, failure, guard};
use std::io;
use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::audio::{
    AudioCodecId, AudioCodecParameters, AudioDecoder, AudioDecoderOptions, well_known as codec,
};
use symphonia::core::errors::Error as DecodeError;
use symphonia::core::formats::well_known::FORMAT_ID_WAVE;
use symphonia::core::formats::{FormatReader, Track, TrackType};
use symphonia::core::meta::RawValue;
use symphonia::core::packet::Packet;
use symphonia::default::get_codecs;
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// Maximum number of damaged packets in a row, after which the file ends.
const MAX_DAMAGED: u32 = 1000;
/// Maximum number of frames of a packet.
const MAX_PACKET_FRAMES: u64 = 1 << 20;

/// Names of codecs in error messages.
const CODECS: [(AudioCodecId, &str); 16] = [
    (codec::CODEC_ID_AAC, "AAC"),
    (codec::CODEC_ID_AC3, "AC-3"),
    (codec::CODEC_ID_AC4, "AC-4"),
    (codec::CODEC_ID_ADPCM_G722, "G.722"),
    (codec::CODEC_ID_ALAC, "ALAC"),
    (codec::CODEC_ID_DCA, "DTS"),
    (codec::CODEC_ID_EAC3, "E-AC-3"),
    (codec::CODEC_ID_FLAC, "FLAC"),
    (codec::CODEC_ID_MP1, "MPEG layer 1"),
    (codec::CODEC_ID_MP2, "MPEG layer 2"),
    (codec::CODEC_ID_OPUS, "Opus"),
    (codec::CODEC_ID_SPEEX, "Speex"),
    (codec::CODEC_ID_TRUEHD, "TrueHD"),
    (codec::CODEC_ID_VORBIS, "Vorbis"),
    (codec::CODEC_ID_WAVPACK, "WavPack"),
    (codec::CODEC_ID_WMA, "WMA"),
];

/// Decoder of the audio track of a file.
pub(crate) struct TrackDecoder {
    format: Box<dyn FormatReader>,
    edits: Vec<Edit>,
    track: Selected,
    /// Damaged packets in a row.
    damaged: u32,
    /// Whether there was a sample.
    decoded: bool,
    warning: Option<String>,
}

/// Rate and number of channels of decoded frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spec {
    pub(crate) sample_rate: u32,
    pub(crate) channels: usize,
}

struct Selected {
    id: u32,
    decoder: Decoder,
    /// As the header states it: 0 if it does not.
    spec: Spec,
    trim: Trim,
    duration: Option<f64>,
}

enum Decoder {
    Symphonia(Box<dyn AudioDecoder>),
    Opus(Box<OpusPackets>),
}

/// Frames of a track that are played.
#[derive(Clone, Copy, Debug, Default)]
struct Trim {
    start: u64,
    end: Option<u64>,
    /// Decoded frames so far.
    at: u64,
}

impl TrackDecoder {
    pub(crate) fn new(container: Container) -> Result<Self> {
        let Container {
            mut format,
            edits,
            is_truncated,
        } = container;
        let truncated = || {
            "the file is shorter than its header states: it is truncated, or a size is wrong"
                .to_owned()
        };
        Ok(Self {
            track: select(&mut *format, &edits)?,
            format,
            edits,
            damaged: 0,
            decoded: false,
            warning: is_truncated.then(truncated),
        })
    }

    /// Rate and number of channels as the header states them, 0 if it does not.
    pub(crate) fn spec(&self) -> Spec {
        self.track.spec
    }

    /// Length in seconds, if the header states it.
    pub(crate) fn duration(&self) -> Option<f64> {
        self.track.duration
    }

    /// Whether a sample was decoded.
    pub(crate) fn has_audio(&self) -> bool {
        self.decoded
    }

    /// What was damaged so far.
    pub(crate) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Decodes the next packet to interleaved samples, possibly none. Returns `None` at the end, which is
    /// also where a file is damaged whose audio before was decoded.
    pub(crate) fn next(&mut self, samples: &mut Vec<f32>) -> Result<Option<Spec>> {
        samples.clear();
        loop {
            let packet = match self.track.trim.is_over() {
                true => Ok(None),
                false => guard(|| self.format.next_packet()),
            };
            let failed = match packet {
                Ok(Some(packet)) if packet.data.is_empty() => {
                    DecodeError::DecodeError("empty packet")
                }
                Ok(Some(packet)) if packet.track_id != self.track.id => continue,
                Ok(Some(packet)) => match self.track.decode(&packet, samples) {
                    Ok(spec) => {
                        self.damaged = 0;
                        self.decoded |= !samples.is_empty();
                        return Ok(Some(spec));
                    }
                    Err(e) => e,
                },
                Ok(None) => return self.end(),
                Err(DecodeError::IoError(e)) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    return self.end();
                }
                // The next of several concatenated streams.
                Err(DecodeError::ResetRequired) => match select(&mut *self.format, &self.edits) {
                    Ok(track) => {
                        self.track = track;
                        continue;
                    }
                    Err(e) => return self.break_off(e),
                },
                Err(e @ DecodeError::DecodeError(_)) => e,
                Err(e) => return self.break_off(failure("audio file", e)),
            };
            self.damaged += 1;
            if self.damaged > MAX_DAMAGED {
                let clause = format!("{} damaged packets in a row", self.damaged);
                return self.break_off(failure(&clause, failed));
            }
            self.warn(|| {
                failure("damaged packets are skipped", failed)
                    .message()
                    .to_owned()
            });
        }
    }

    fn end(&self) -> Result<Option<Spec>> {
        // Recorders write WAV files without samples.
        let is_wave = self.format.format_info().format == FORMAT_ID_WAVE;
        if self.decoded || (is_wave && self.warning.is_none()) {
            return Ok(None);
        }
        if self.damaged > 0 {
            bail!(
                Format,
                "all {} packets of the audio file are damaged",
                self.damaged
            );
        }
        bail!(
            Format,
            "the audio file has a header and no audio that can be decoded: it is empty or truncated"
        );
    }

    /// Ends the audio at an error in the file. An error of the device that it is on is returned.
    fn break_off(&mut self, error: Error) -> Result<Option<Spec>> {
        if !self.decoded || error.kind() == ErrorKind::Io {
            return Err(error);
        }
        self.warn(|| error.message().to_owned());
        Ok(None)
    }

    /// Sets the warning unless there is one.
    fn warn(&mut self, message: impl FnOnce() -> String) {
        self.warning.get_or_insert_with(message);
    }
}

impl Selected {
    fn decode(&mut self, packet: &Packet, samples: &mut Vec<f32>) -> Result<Spec, DecodeError> {
        let spec = match &mut self.decoder {
            Decoder::Symphonia(decoder) => {
                let decoded = guard(|| decoder.decode(packet))?;
                decoded.copy_to_vec_interleaved(samples);
                Spec {
                    sample_rate: decoded.spec().rate(),
                    channels: decoded.spec().channels().count(),
                }
            }
            Decoder::Opus(opus) => {
                let decoded = opus.decode(&packet.data, samples);
                decoded.ok_or(DecodeError::DecodeError("opus: invalid packet"))?;
                let padding = usize::try_from(packet.trim_end.get()).unwrap_or(usize::MAX);
                let padding = padding.saturating_mul(opus.channels());
                samples.truncate(samples.len().saturating_sub(padding));
                Spec {
                    sample_rate: OPUS_RATE,
                    channels: opus.channels(),
                }
            }
        };
        self.trim.apply(spec.channels, samples);
        Ok(spec)
    }
}

impl Trim {
    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| self.at >= end)
    }

    /// Removes frames before the start and after the end.
    fn apply(&mut self, channels: usize, samples: &mut Vec<f32>) {
        let frames = (samples.len() / channels.max(1)) as u64;
        let kept = |limit: u64| {
            let frames = limit.saturating_sub(self.at).min(frames);
            usize::try_from(frames).unwrap_or(usize::MAX) * channels
        };
        samples.truncate(self.end.map_or(samples.len(), kept));
        samples.drain(..kept(self.start).min(samples.len()));
        self.at += frames;
    }
}

/// Selects the default audio track, or else the first one that can be decoded.
fn select(format: &mut dyn FormatReader, edits: &[Edit]) -> Result<Selected> {
    let padding = itunes_padding(format);
    let default = format.default_track(TrackType::Audio);
    let others = format.tracks().iter();
    let others = others.filter(|t| Some(t.id) != default.map(|d| d.id));
    let mut failed = None;
    for track in default.into_iter().chain(others) {
        let Some(CodecParameters::Audio(params)) = &track.codec_params else {
            continue;
        };
        match Selected::new(track, params) {
            Ok(mut selected) => {
                let edit = edits.iter().find(|e| e.track == track.id);
                selected.trim(track, edit, padding);
                if selected.duration.is_none() {
                    let media = format.media_info();
                    let duration = media.duration.filter(|d| d.get() > 0);
                    let delay = selected.delay();
                    selected.duration = media.time_base.zip(duration).and_then(|(base, length)| {
                        let length = base.calc_duration(length)?.as_secs_f64();
                        Some((length - delay).max(0.0))
                    });
                }
                return Ok(selected);
            }
            Err(e) => failed = failed.or(Some(e)),
        }
    }
    Err(failed.unwrap_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            "the file has no audio track of a supported codec",
        )
    }))
}

impl Selected {
    fn new(track: &Track, params: &AudioCodecParameters) -> Result<Self> {
        let channels = params.channels.as_ref().map_or(0, |c| c.count());
        if channels > MAX_CHANNELS {
            bail!(
                Unsupported,
                "audio track of {channels} channels, expected at most {MAX_CHANNELS}"
            );
        }
        if params.sample_rate == Some(0) {
            bail!(Format, "sample rate of 0 Hz");
        }
        let frames = params.max_frames_per_packet.unwrap_or(0);
        if frames > MAX_PACKET_FRAMES {
            bail!(
                TooLarge,
                "packets of {frames} frames, expected at most {MAX_PACKET_FRAMES}"
            );
        }
        let decoder = if params.codec == codec::CODEC_ID_OPUS {
            let header = params.extra_data.as_deref().unwrap_or_default();
            Decoder::Opus(Box::new(OpusPackets::new(header)?))
        } else {
            let options = AudioDecoderOptions::default();
            let made = guard(|| get_codecs().make_audio_decoder(params, &options));
            Decoder::Symphonia(made.map_err(|e| no_decoder(params, e))?)
        };
        Ok(Self {
            id: track.id,
            decoder,
            spec: Spec {
                sample_rate: params.sample_rate.unwrap_or(0),
                channels,
            },
            trim: Trim::default(),
            duration: None,
        })
    }

    /// Seconds before the first frame that is played.
    fn delay(&self) -> f64 {
        self.trim.start as f64 / f64::from(self.spec.sample_rate.max(1))
    }

    /// Determines which frames are played, and the duration.
    fn trim(&mut self, track: &Track, edit: Option<&Edit>, padding: Option<(u64, u64)>) {
        let frames = track.num_frames.filter(|n| *n > 0);
        let rate = self.spec.sample_rate;
        // Decoders of other formats than MP4 trim on their own, except that of Opus.
        match (edit, padding, &self.decoder) {
            (Some(edit), ..) if rate > 0 => {
                let (start, end) = edit.frames(rate);
                let end = end.map(|end| end.min(frames.unwrap_or(end)));
                (self.trim.start, self.trim.end) = (start, end);
            }
            (_, Some((start, length)), _) => {
                (self.trim.start, self.trim.end) = (start, start.checked_add(length));
            }
            (_, _, Decoder::Opus(opus)) => self.trim.start = u64::from(opus.pre_skip),
            _ => (),
        }
        let end = self.trim.end.or(frames);
        self.duration = match end {
            Some(end) if rate > 0 => {
                Some(end.saturating_sub(self.trim.start) as f64 / f64::from(rate))
            }
            _ => None,
        };
    }
}

fn no_decoder(params: &AudioCodecParameters, error: DecodeError) -> Error {
    let known = CODECS.iter().find(|(id, _)| *id == params.codec);
    let name = known.map_or_else(|| params.codec.to_string(), |(_, name)| (*name).to_owned());
    if params.codec == codec::CODEC_ID_AAC && matches!(error, DecodeError::Unsupported(_)) {
        let message = "audio codec AAC: only AAC-LC of 1 or 2 channels is supported, HE-AAC is not";
        return Error::new(ErrorKind::Unsupported, message).caused_by(error);
    }
    match get_codecs().get_audio_decoder(params.codec) {
        Some(_) => failure(&format!("audio codec {name}"), error),
        None => Error::new(
            ErrorKind::Unsupported,
            format_args!("no decoder for the audio codec {name}"),
        ),
    }
}

/// Delay and number of frames in the comment `iTunSMPB`: numbers in hexadecimal, of which the second
/// is the delay and the fourth the length.
fn itunes_padding(format: &mut dyn FormatReader) -> Option<(u64, u64)> {
    let mut metadata = format.metadata();
    let tags = &metadata.skip_to_latest()?.media.tags;
    let tag = tags.iter().find(|t| t.raw.key.contains("iTunSMPB"))?;
    let RawValue::String(text) = &tag.raw.value else {
        return None;
    };
    let mut numbers = text.split_ascii_whitespace();
    let mut number = |i| u64::from_str_radix(numbers.nth(i)?, 16).ok();
    let (delay, length) = (number(1)?, number(1)?);
    (length > 0).then_some((delay, length))
}
