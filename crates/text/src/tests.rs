//! Tests of the tokenizer with small synthetic vocabularies. Real ones are tested in
//! `tests/it/tokenizer.rs`.

use super::bytelevel::CHARS;
use super::*;
use std::collections::HashMap;
use tabla_core::error::ErrorKind;

const NASTY: &[&str] = &[
    "",
    " ",
    "  two  spaces  ",
    "\t\ttabs\n\n\r\nlines\r",
    "NUL \0 and \u{7f} and \u{1b}[0m",
    "👩‍👩‍👧‍👦 family, 👍🏽 tone, 🇩🇪 flag",
    "日本語、中文。한국어",
    "\u{301}lone mark, e\u{301}\u{301}, \u{feff}bom",
    "ﷺ ½ Ⅷ \u{e000} \u{10ffff}",
    "mixed_underline <0x0A> <s> </s> <|im_end|",
    "العربية हिन्दी ไทย",
];

/// A byte-level vocabulary with five merges, one control and one user-defined token.
fn gpt2(edit: impl FnOnce(&mut Vocab<'_>)) -> tabla_core::error::Result<Tokenizer> {
    let bytes: Vec<String> = CHARS.iter().map(char::to_string).collect();
    let mut vocab = Vocab {
        model: "gpt2",
        pre: Some("gpt-2"),
        ..Vocab::default()
    };
    vocab.tokens = bytes.iter().map(String::as_str).collect();
    vocab.tokens.extend([
        "he",
        "ll",
        "hell",
        "hello",
        "Ġhello",
        "<|im_end|>",
        "<think>",
    ]);
    vocab.types = vec![1; 261];
    vocab.types.extend([3, 4]);
    vocab.merges = vec!["h e", "l l", "he ll", "hell o", "Ġ hello"];
    edit(&mut vocab);
    Tokenizer::new(&vocab)
}

/// A `SentencePiece` vocabulary with three special tokens, all bytes, a few letters and scores.
fn llama(edit: impl FnOnce(&mut Vocab<'_>)) -> tabla_core::error::Result<Tokenizer> {
    let bytes: Vec<String> = (0..256).map(|b| format!("<0x{b:02X}>")).collect();
    let mut vocab = Vocab {
        model: "llama",
        ..Vocab::default()
    };
    vocab.tokens = vec!["<unk>", "<s>", "</s>"];
    vocab.types = vec![2, 3, 3];
    vocab.tokens.extend(bytes.iter().map(String::as_str));
    vocab.types.resize(259, 6);
    vocab.tokens.extend([
        "▁", "a", "b", "ab", "▁a", "▁ab", "ba", "<s", "s", "<", ">", "s>",
    ]);
    vocab.types.resize(vocab.tokens.len(), 1);
    let scores = [0., 0., 0., -3., -1., -2., -4., -5., 0., 0., 0., -6.];
    vocab.scores = vec![0.0; 259];
    vocab.scores.extend(scores);
    edit(&mut vocab);
    Tokenizer::new(&vocab)
}

/// Opens the sections of a tokenizer.
pub(super) fn reopened(tokenizer: &Tokenizer) -> Tokenizer {
    let sections: HashMap<_, _> = tokenizer.sections().into_iter().collect();
    Tokenizer::from_sections(|name| Some(Section::aligned_copy(sections.get(name)?))).unwrap()
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let ids = tokenizer.encode(text, EncodeOptions::default()).unwrap();
    let opened = reopened(tokenizer);
    assert_eq!(opened.encode(text, EncodeOptions::default()).unwrap(), ids);
    ids
}

fn refused(tokenizer: tabla_core::error::Result<Tokenizer>) -> (ErrorKind, String) {
    let error = tokenizer.unwrap_err();
    (error.kind(), error.message().to_owned())
}

const PARSE: EncodeOptions = EncodeOptions {
    add_special: false,
    specials: SpecialTokens::Tokens,
};
const MARKED: EncodeOptions = EncodeOptions {
    add_special: true,
    specials: SpecialTokens::Text,
};
const START: DecodeOptions = DecodeOptions {
    from_start: true,
    specials: SpecialTokens::Text,
};

#[test]
fn byte_level_merges() {
    let t = gpt2(|_| {}).unwrap();
    assert_eq!(ids(&t, "hello hello"), [259, 260]);
    assert_eq!(ids(&t, "hell"), [258]);
    assert_eq!(ids(&t, "é"), [0xc3, 0xa9]);
    assert_eq!(t.token_bytes(260), b" hello");
    assert_eq!(
        (t.kind(), t.pre(), t.vocab_size()),
        (VocabKind::Gpt2, Some("gpt-2"), 263)
    );
}

#[test]
fn sentencepiece_merges_by_score() {
    let t = llama(|_| {}).unwrap();
    // "▁a" has a higher score than "ab", and "▁ab" a higher one than "ba".
    assert_eq!(ids(&t, "abab"), [264, 262]);
    assert_eq!(ids(&t, "ba"), [259, 265]);
    assert_eq!(ids(&t, "é"), [259, 3 + 0xc3, 3 + 0xa9]);
}

#[test]
fn texts_round_trip() {
    for t in [gpt2(|_| {}).unwrap(), llama(|_| {}).unwrap()] {
        for text in NASTY {
            let ids = ids(&t, text);
            assert_eq!(
                t.decode(&ids, START).unwrap(),
                text.as_bytes(),
                "{:?} {text:?}",
                t.kind()
            );
            let mut stream = Utf8Stream::new(t.piece_bytes_max());
            let mut shown = String::new();
            for &id in &ids {
                shown.push_str(stream.push(t.token_bytes(id)));
            }
            shown.push_str(stream.flush());
            let space = if t.kind() == VocabKind::Llama && !text.is_empty() {
                " "
            } else {
                ""
            };
            assert_eq!(shown, format!("{space}{text}"));
        }
    }
}

#[test]
fn special_tokens_are_text_by_default() {
    let t = gpt2(|_| {}).unwrap();
    assert!(!ids(&t, "<|im_end|>").contains(&261));
    assert_eq!(t.encode("hello<|im_end|>", PARSE).unwrap(), [259, 261]);
    // User-defined tokens are always parsed.
    assert_eq!(ids(&t, "<think>hello"), [262, 259]);
    assert_eq!(
        t.decode(&[259, 261, 262], DecodeOptions::default())
            .unwrap(),
        b"hello<think>"
    );
    let shown = DecodeOptions {
        specials: SpecialTokens::Tokens,
        ..DecodeOptions::default()
    };
    assert_eq!(
        t.decode_lossy(&[259, 261], shown).unwrap(),
        "hello<|im_end|>"
    );
    assert_eq!(
        (t.token_bytes(261), t.token_bytes_with_special(261)),
        (&b""[..], &b"<|im_end|>"[..])
    );
    assert_eq!(t.special_id("<|im_end|>"), Some(261));
    assert!(t.is_stop(261) && t.stops() == [261] && t.is_control(261) && !t.is_control(262));
}

#[test]
fn merges_never_form_control_tokens() {
    // "<s" and "s>" are tokens, so a merge by score could form "<s>".
    let t = llama(|_| {}).unwrap();
    assert!(!ids(&t, "<s>").contains(&1));
    assert_eq!(t.encode("<s>", PARSE).unwrap(), [1]);
    // Text does not match a byte token either.
    assert!(!ids(&t, "<0x0A>").contains(&13));
    let t = gpt2(|v| {
        v.tokens.push("hehe");
        v.types.push(3);
        v.merges.push("he he");
    });
    assert_eq!(ids(&t.unwrap(), "hehe"), [256, 256]);
}

#[test]
fn adds_space_before_text_and_after_special_tokens() {
    let t = llama(|_| {}).unwrap();
    assert_eq!(t.encode("a</s>a", PARSE).unwrap(), [263, 2, 263]);
    assert_eq!(t.decode(&[1, 263, 263], START).unwrap(), b"a a");
    assert_eq!(
        t.decode(&[263, 263], DecodeOptions::default()).unwrap(),
        b" a a"
    );
    let t = llama(|v| v.add_space_prefix = Some(false)).unwrap();
    assert_eq!(ids(&t, "a a"), [260, 263]);
    assert_eq!(t.decode(&[263], START).unwrap(), b" a");
}

#[test]
fn adds_bos_and_eos_as_file_or_model_specifies() {
    let t = llama(|_| {}).unwrap();
    assert_eq!((t.bos(), t.eos(), t.adds_bos()), (Some(1), Some(2), true));
    assert_eq!(t.encode("a", MARKED).unwrap(), [1, 263]);
    let t = llama(|v| (v.add_bos, v.add_eos) = (Some(false), Some(true))).unwrap();
    assert_eq!(t.encode("a", MARKED).unwrap(), [263, 2]);
    let t = gpt2(|v| v.bos = Some(261)).unwrap();
    assert!(t.encode("", MARKED).unwrap().is_empty());
    let t = gpt2(|v| (v.bos, v.pre) = (Some(261), Some("llama-bpe"))).unwrap();
    assert_eq!(t.encode("", MARKED).unwrap(), [261]);
}

#[test]
fn number_of_token_types_selects_the_format_of_pairs() {
    for (count, ids, types) in [
        (None, vec![1, 263, 2, 263, 2], vec![0; 5]),
        (Some(1), vec![1, 263, 2, 2, 263, 2], vec![0; 6]),
        (Some(2), vec![1, 263, 2, 263, 2], vec![0, 0, 0, 1, 1]),
    ] {
        // The keys of single texts do not matter.
        let t = llama(|v| (v.token_type_count, v.add_bos) = (count, Some(false))).unwrap();
        let pair = t.encode_pair(["a", "a"], None).unwrap();
        assert_eq!((pair.ids, pair.types), (ids, types), "{count:?}");
    }
}

#[test]
fn words_in_vocabulary_bypass_merges_with_ignore_merges() {
    let whole = |v: &mut Vocab<'_>| {
        v.tokens.push("ox");
        v.types.push(1);
    };
    assert_eq!(
        ids(&gpt2(whole).unwrap(), "ox"),
        [u32::from(b'o'), u32::from(b'x')]
    );
    let t = gpt2(|v| {
        whole(v);
        v.pre = Some("llama3");
    });
    assert_eq!(ids(&t.unwrap(), "ox"), [263]);
}

#[test]
fn ids_out_of_range_are_absent() {
    let t = llama(|v| {
        (v.bos, v.eos, v.eot, v.unk) = (Some(u32::MAX), Some(999), Some(3), Some(1 << 31));
    });
    let t = t.unwrap();
    assert_eq!((t.bos(), t.eos()), (None, None));
    assert_eq!(t.encode("a", MARKED).unwrap(), [263]);
    assert_eq!(t.stops(), [2, 3]);
    assert_eq!(t.token_bytes(u32::MAX), b"");
    let error = t.decode(&[271], START).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert_eq!(
        error.message(),
        "token 271 is out of range for a vocabulary of 271"
    );
}

#[test]
fn rejects_lists_of_wrong_length() {
    let (kind, message) = refused(gpt2(|v| v.types.truncate(5)));
    assert_eq!(
        (kind, &*message),
        (
            ErrorKind::Format,
            "tokenizer.ggml.token_type: expected 263 entries, got 5"
        )
    );
    assert_eq!(
        refused(llama(|v| v.scores.truncate(1))).0,
        ErrorKind::Format
    );
    assert_eq!(refused(gpt2(|v| v.merges.clear())).0, ErrorKind::Format);
    assert_eq!(refused(gpt2(|v| v.tokens.clear())).0, ErrorKind::Format);
    assert_eq!(
        refused(gpt2(|v| v.model = "rwkv")).0,
        ErrorKind::Unsupported
    );
    assert_eq!(
        refused(gpt2(|v| v.pre = Some("nonsense"))).0,
        ErrorKind::Unsupported
    );
    let long = "x".repeat(3000);
    assert_eq!(
        refused(Tokenizer::new(&Vocab {
            model: "llama",
            tokens: vec![&long],
            ..Vocab::default()
        }))
        .0,
        ErrorKind::TooLarge
    );
}

#[test]
fn rejects_invalid_merges() {
    // The smallest vocabulary for which the `tokenizers` library panics.
    let vocab = Vocab {
        model: "gpt2",
        pre: Some("gpt-2"),
        tokens: vec!["aa", "bb"],
        merges: vec!["aa bb"],
        ..Vocab::default()
    };
    let (kind, message) = refused(Tokenizer::new(&vocab));
    assert_eq!(
        (kind, &*message),
        (
            ErrorKind::Tokenizer,
            r#"tokenizer.ggml: merge 0: "aa bb": "aabb" is not in the vocabulary"#
        )
    );
    for merge in ["he", "", " ", "he ", " he", "zz he", "he zz", "h e x"] {
        assert_eq!(
            refused(gpt2(|v| v.merges.push(merge))).0,
            ErrorKind::Tokenizer,
            "{merge:?}"
        );
    }
}

#[test]
fn first_of_duplicate_tokens_wins_and_empty_ones_are_ignored() {
    let t = gpt2(|v| {
        v.tokens.extend(["hello", "", "", "<think>"]);
        v.types.extend([1, 1, 4, 4]);
    });
    let t = t.unwrap();
    assert_eq!(ids(&t, "hello<think>"), [259, 262]);
    assert_eq!(
        (t.token_bytes(263), t.token_bytes(264)),
        (&b"hello"[..], &b""[..])
    );
}

#[test]
fn unknown_text_is_unknown_token_or_error() {
    let tokens = || vec!["<unk>", "▁", "a"];
    let mut vocab = Vocab {
        model: "llama",
        tokens: tokens(),
        types: vec![2, 1, 1],
        ..Vocab::default()
    };
    assert_eq!(ids(&Tokenizer::new(&vocab).unwrap(), "aéé"), [1, 2, 0]);
    vocab.types[0] = 3;
    let error = Tokenizer::new(&vocab)
        .unwrap()
        .encode("aé", EncodeOptions::default())
        .unwrap_err();
    assert_eq!(error.message(), "the vocabulary has no token for \"é\"");
    let t = gpt2(|v| v.tokens[usize::from(b'x')] = "gone").unwrap();
    assert_eq!(
        t.encode("x", EncodeOptions::default())
            .unwrap_err()
            .message(),
        "the vocabulary has no token for \"x\""
    );
}

#[test]
fn long_run_of_spaces_is_correct_or_rejected() {
    let t = gpt2(|_| {}).unwrap();
    let expected = ids(&t, &(" ".repeat(900_000) + "hello"));
    assert!(expected[..899_999].iter().all(|&id| id == u32::from(b' ')));
    assert!(expected[899_999..] == [260]);
    for spaces in [1_100_000, 5 << 20] {
        let long = " ".repeat(spaces) + "x";
        let error = t
            .encode(&long, EncodeOptions::default())
            .map(drop)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    }
    // A long text of short words is fine.
    assert_eq!(ids(&t, &"hello ".repeat(100_000)).len(), 100_001);
}

#[test]
fn splitting_at_spaces_does_not_change_tokens() {
    let cut = llama(|_| {}).unwrap();
    // A token that spans words disables splitting at spaces.
    let whole = llama(|v| {
        v.tokens.push("b▁b▁b");
        v.types.push(1);
        v.scores.push(-9.0);
    });
    let text = "ab  aba b é".repeat(20_000);
    assert_eq!(ids(&cut, &text), ids(&whole.unwrap(), &text));
}

#[test]
fn gemma_4_keeps_runs_of_newlines() {
    let mut vocab = Vocab {
        model: "gemma4",
        ..Vocab::default()
    };
    vocab.tokens = vec!["<bos>", "<0x0A>", "\n\n\n", "▁", "a", "▁a", "\n"];
    vocab.types = vec![3, 6, 1, 1, 1, 1, 1];
    vocab.merges = vec!["▁ a"];
    vocab.bos = Some(0);
    let t = Tokenizer::new(&vocab).unwrap();
    assert_eq!(ids(&t, "a a\n\n\na\n"), [4, 5, 2, 4, 6]);
    assert_eq!(t.encode("a", MARKED).unwrap(), [0, 4]);
    assert_eq!(t.decode(&[4, 5, 2, 1], START).unwrap(), b"a a\n\n\n\n");
}

#[test]
fn harmony_end_of_message_is_not_end_of_generation() {
    let t = gpt2(|v| {
        v.tokens.extend(["<|end|>", "<|return|>", "<|call|>"]);
        v.types.extend([3, 3, 3]);
        v.eot = Some(263);
    });
    assert_eq!(t.unwrap().stops(), [261, 264, 265]);
    let t = gpt2(|v| {
        v.tokens.extend(["<|end|>", "<eos>"]);
        v.types.extend([3, 1]);
    });
    assert_eq!(
        t.unwrap().stops(),
        [261, 263],
        "a normal token is not an end-of-generation token"
    );
}

#[test]
fn encodes_on_several_threads() {
    let t = gpt2(|_| {}).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(ids(&t, "hello hello"), [259, 260]));
        }
    });
}

/// Markers continue a text, so nothing is prepended, and control tokens in them are tokens.
#[test]
fn markers_continue_a_text() {
    let tokenizer = llama(|_| {}).expect("a vocabulary");
    let id = |text: &str| tokenizer.special_id(text).expect("a special token");
    let start = tokenizer.encode("a</s>", EncodeOptions::default());
    let plain = tokenizer.encode_continuation("a").expect("a text");
    assert_ne!(start.expect("a text")[0], plain[0]);
    let markers = tokenizer.encode_markers("a</s>").expect("a text");
    assert_eq!(markers, [&plain[..], &[id("</s>")]].concat());
    let text = tokenizer.encode_continuation("a</s>").expect("a text");
    assert!(!text.contains(&id("</s>")));
    let tokenizer = gpt2(|_| {}).expect("a vocabulary");
    let markers = tokenizer.encode_markers("<think>he<|im_end|>");
    assert_eq!(markers.expect("a text"), [262, 256, 261]);
}
