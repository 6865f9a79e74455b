//! Stop strings: streaming search that is independent of token boundaries.

/// Searches for stop strings in streamed text. Text that may be the start of a stop string is held
/// back until it is decided.
#[derive(Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Text that is held back: it may be the start of a stop string.
    pending: String,
    out: String,
    /// Index of the stop string that was found.
    found: Option<usize>,
}

impl StopStrings {
    /// Creates a search for `stops`. Empty strings never match.
    pub fn new(stops: &[String]) -> Self {
        let stops: Vec<String> = stops.iter().filter(|s| !s.is_empty()).cloned().collect();
        let longest = stops.iter().map(String::len).max().unwrap_or(0);
        Self {
            pending: String::with_capacity(2 * longest + 64),
            out: String::with_capacity(2 * longest + 64),
            stops,
            found: None,
        }
    }

    /// Processes the next text.
    pub fn push(&mut self, text: &str) {
        self.out.clear();
        self.append(text);
    }

    /// Processes a text in which stop strings do not count, and releases it and the text that was held
    /// back.
    pub fn skip(&mut self, text: &str) {
        self.out.clear();
        if !self.is_stopped() {
            self.out.push_str(&self.pending);
            self.out.push_str(text);
        }
        self.pending.clear();
    }

    /// Processes the next text, and adds the released text to that of the last push or skip.
    pub fn append(&mut self, text: &str) {
        if self.is_stopped() {
            return;
        }
        self.pending.push_str(text);
        let stops = self.stops.iter().enumerate();
        let matches = stops.filter_map(|(index, stop)| Some((self.pending.find(stop)?, index)));
        let end = match matches.min() {
            Some((at, index)) => {
                self.found = Some(index);
                at
            }
            None => self.pending.len() - self.partial_match_len(),
        };
        self.out.push_str(&self.pending[..end]);
        self.pending.drain(..end);
    }

    /// The text released by the last push: it precedes any stop string. Empty after a stop string.
    pub fn text(&self) -> &str {
        &self.out
    }

    /// Processes the last text and releases the text that was held back.
    pub fn flush(&mut self, text: &str) -> &str {
        self.push(text);
        if !self.is_stopped() {
            self.out.push_str(&self.pending);
        }
        self.pending.clear();
        &self.out
    }

    /// Whether a stop string was found.
    pub fn is_stopped(&self) -> bool {
        self.found.is_some()
    }

    /// The stop string that was found. If several begin at the same position, the first one in the
    /// list.
    pub fn found(&self) -> Option<&str> {
        self.found.map(|index| &*self.stops[index])
    }

    /// Length in bytes of the longest suffix of `pending` that is a prefix of a stop string.
    fn partial_match_len(&self) -> usize {
        let pending = &self.pending;
        let is_prefix = |from: usize| {
            let end = &pending[from..];
            self.stops.iter().any(|stop| stop.starts_with(end))
        };
        let longest = self.stops.iter().map(|stop| stop.len() - 1).max();
        let first = pending.len() - longest.unwrap_or(0).min(pending.len());
        let mut starts = (first..pending.len()).filter(|at| pending.is_char_boundary(*at));
        starts
            .find(|at| is_prefix(*at))
            .map_or(0, |at| pending.len() - at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the released text and whether a stop string was found.
    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        let mut strings = StopStrings::new(&stops);
        let mut out = String::new();
        for piece in pieces {
            strings.push(piece);
            out.push_str(strings.text());
        }
        out.push_str(strings.flush(""));
        (out, strings.is_stopped())
    }

    #[test]
    fn finds_stop_string_across_pieces() {
        let text = "one END two";
        for cut in 0..=text.len() {
            let (a, b) = text.split_at(cut);
            assert_eq!(run(&["END"], &[a, b]), ("one ".to_string(), true), "{cut}");
        }
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(|c| &**c).collect();
        assert_eq!(run(&["END"], &letters), ("one ".to_string(), true));
    }

    #[test]
    fn releases_partial_matches() {
        assert_eq!(
            run(&["END"], &["an E", "N", "Emy EN"]),
            ("an ENEmy EN".to_string(), false)
        );
        assert_eq!(
            run(&["aab"], &["aaa", "a", "c"]),
            ("aaaac".to_string(), false)
        );
        assert_eq!(run(&["aab"], &["aa", "a", "b"]), ("a".to_string(), true));
        assert_eq!(run(&[], &["a", "b"]), ("ab".to_string(), false));
        assert_eq!(run(&["", "x"], &["abx"]), ("ab".to_string(), true));
    }

    #[test]
    fn skipped_text_is_not_searched() {
        let mut strings = StopStrings::new(&["END".to_string()]);
        strings.push("an E");
        assert_eq!(strings.text(), "an ");
        strings.skip("ND END");
        assert_eq!((strings.text(), strings.is_stopped()), ("END END", false));
        strings.skip("END ");
        strings.append("x EN");
        assert_eq!(strings.text(), "END x ");
        strings.push("D");
        assert_eq!((strings.text(), strings.is_stopped()), ("", true));
        strings.skip("y");
        assert_eq!(strings.text(), "");
    }

    #[test]
    fn returns_the_stop_string() {
        let stops = ["bc", "b", "", "abc"].map(String::from);
        for (text, expected) in [("xabc", Some("abc")), ("xbc", Some("bc")), ("x", None)] {
            let mut strings = StopStrings::new(&stops);
            strings.push(text);
            assert_eq!(strings.found(), expected, "{text}");
        }
    }

    #[test]
    fn stops_at_first_match() {
        assert_eq!(
            run(&["cd", "bcde"], &["abc", "de"]),
            ("a".to_string(), true)
        );
        assert_eq!(
            run(&["é", "\n\n"], &["caf", "\n", "é"]),
            ("caf\n".to_string(), true)
        );
    }

    /// Compares random texts over three letters with a search in the whole text.
    #[test]
    fn random_texts_stop_where_search_does() {
        let mut state = 7u64;
        let mut word = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from((state >> 33) % below).expect("small")
        };
        for _ in 0..2000 {
            let mut text = |most| -> String {
                let len = word(most) + 1;
                (0..len).map(|_| ["a", "b", "ß"][word(3)]).collect()
            };
            let stops: Vec<String> = (0..2).map(|_| text(4)).collect();
            let pieces: Vec<String> = (0..6).map(|_| text(4)).collect();
            let whole = pieces.concat();
            let end = stops.iter().filter_map(|stop| whole.find(stop)).min();
            let expected = end.map_or(&*whole, |end| &whole[..end]);
            let piece_refs: Vec<&str> = pieces.iter().map(|p| &**p).collect();
            let stop_refs: Vec<&str> = stops.iter().map(|s| &**s).collect();
            let (out, stopped) = run(&stop_refs, &piece_refs);
            // A stop string may be complete before a longer one that starts earlier.
            assert_eq!(stopped, end.is_some(), "{stops:?} in {pieces:?}");
            assert!(
                expected.starts_with(&out) || out.starts_with(expected),
                "{stops:?} in {pieces:?}"
            );
            assert!(
                stops.iter().all(|stop| !out.contains(&**stop)),
                "{stops:?} in {pieces:?}"
            );
        }
    }
}
