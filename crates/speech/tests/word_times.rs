//! Words of segments compared with those of `openai-whisper`; `reference/word_times.py` writes the
//! golden file.

use tabla_speech::{Segment, TimedWord, add_words};

const EOT: u32 = 50_257;

/// Text, number of tokens, start, end.
type GoldenWord = (String, usize, f64, f64);
/// Start, end, words with text, start and end.
type GoldenSegment = (f64, f64, Vec<(String, f64, f64)>);
/// Seek, end of the last speech, words, segments with start, end and number of text tokens, segments
/// with words.
type Case = (
    u32,
    f64,
    Vec<GoldenWord>,
    Vec<(f64, f64, usize)>,
    Vec<GoldenSegment>,
);

#[test]
fn words_of_segments_are_those_of_openai() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("golden/word_times.json")).unwrap();
    assert_eq!(cases.len(), 160);
    for case in cases {
        let (seek, last_speech, words, before, after) = &case;
        let words = words.iter().map(|(text, tokens, start, end)| TimedWord {
            text: text.clone(),
            tokens: *tokens,
            start: *start,
            end: *end,
            probability: 0.5,
        });
        let segment = |(start, end, tokens): &(f64, f64, usize)| Segment {
            seek: *seek,
            start: *start,
            end: *end,
            tokens: [vec![50_364], vec![1; *tokens], vec![50_365]].concat(),
            ..Segment::default()
        };
        let mut segments: Vec<Segment> = before.iter().map(segment).collect();
        add_words(&mut segments, words.collect(), EOT, *last_speech);
        let found = segments.iter().map(|segment| {
            let words = segment.words.iter();
            let words = words.map(|w| (w.text.clone(), w.start, w.end));
            (segment.start, segment.end, words.collect())
        });
        assert_eq!(found.collect::<Vec<GoldenSegment>>(), *after, "{case:?}");
    }
}
