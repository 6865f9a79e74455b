//! Tests of the tokenizer on small vocabularies made here; real ones are in `tests/it/tokenizer.rs`.

use super::bytelevel::CHARS;
use super::*;
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

/// Bytes, five merges, one control and one user-defined token.
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

/// Three specials, all bytes, a few letters and merges by score.
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

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, Encode::default()).unwrap()
}

fn refused(tokenizer: tabla_core::error::Result<Tokenizer>) -> (ErrorKind, String) {
    let error = tokenizer.unwrap_err();
    (error.kind(), error.message().to_owned())
}

const PARSE: Encode = Encode {
    add_special: false,
    specials: Specials::Tokens,
};
const MARKED: Encode = Encode {
    add_special: true,
    specials: Specials::Text,
};
const START: Decode = Decode {
    from_start: true,
    specials: Specials::Text,
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
        (Kind::Gpt2, Some("gpt-2"), 263)
    );
}

#[test]
fn sentencepiece_merges_by_score() {
    let t = llama(|_| {}).unwrap();
    // "▁a" has a better score than "ab", and "▁ab" a better one than "ba".
    assert_eq!(ids(&t, "abab"), [264, 262]);
    assert_eq!(ids(&t, "ba"), [259, 265]);
    assert_eq!(ids(&t, "é"), [259, 3 + 0xc3, 3 + 0xa9]);
}

#[test]
fn every_text_comes_back() {
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
            let space = if t.kind() == Kind::Llama && !text.is_empty() {
                " "
            } else {
                ""
            };
            assert_eq!(shown, format!("{space}{text}"));
        }
    }
}

#[test]
fn special_tokens_in_what_users_write_are_text() {
    let t = gpt2(|_| {}).unwrap();
    assert!(!ids(&t, "<|im_end|>").contains(&261));
    assert_eq!(t.encode("hello<|im_end|>", PARSE).unwrap(), [259, 261]);
    // User-defined tokens are content and always whole.
    assert_eq!(ids(&t, "<think>hello"), [262, 259]);
    assert_eq!(
        t.decode(&[259, 261, 262], Decode::default()).unwrap(),
        b"hello<think>"
    );
    let shown = Decode {
        specials: Specials::Tokens,
        ..Decode::default()
    };
    assert_eq!(
        t.decode_lossy(&[259, 261], shown).unwrap(),
        "hello<|im_end|>"
    );
    assert_eq!(
        (t.token_bytes(261), t.token_spelling(261)),
        (&b""[..], &b"<|im_end|>"[..])
    );
    assert_eq!(t.special_id("<|im_end|>"), Some(261));
    assert!(t.is_stop(261) && t.stops() == [261] && t.is_control(261) && !t.is_control(262));
}

#[test]
fn merges_never_make_markup() {
    // "<s" and "s>" are tokens, so a merge by score could make "<s>".
    let t = llama(|_| {}).unwrap();
    assert!(!ids(&t, "<s>").contains(&1));
    assert_eq!(t.encode("<s>", PARSE).unwrap(), [1]);
    // A byte token is not text either.
    assert!(!ids(&t, "<0x0A>").contains(&13));
    let t = gpt2(|v| {
        v.tokens.push("hehe");
        v.types.push(3);
        v.merges.push("he he");
    });
    assert_eq!(ids(&t.unwrap(), "hehe"), [256, 256]);
}

#[test]
fn a_space_goes_in_front_of_text_and_behind_special_tokens() {
    let t = llama(|_| {}).unwrap();
    assert_eq!(t.encode("a</s>a", PARSE).unwrap(), [263, 2, 263]);
    assert_eq!(t.decode(&[1, 263, 263], START).unwrap(), b"a a");
    assert_eq!(t.decode(&[263, 263], Decode::default()).unwrap(), b" a a");
    let t = llama(|v| v.add_space_prefix = Some(false)).unwrap();
    assert_eq!(ids(&t, "a a"), [260, 263]);
    assert_eq!(t.decode(&[263], START).unwrap(), b" a");
}

#[test]
fn bos_and_eos_are_added_as_the_file_or_the_kind_says() {
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
fn a_word_in_the_vocabulary_is_taken_whole_where_the_rule_says() {
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
    assert_eq!(error.message(), "token 271 is not in the vocabulary of 271");
}

#[test]
fn lists_that_do_not_fit_are_refused() {
    let (kind, message) = refused(gpt2(|v| v.types.truncate(5)));
    assert_eq!(
        (kind, &*message),
        (
            ErrorKind::Format,
            "tokenizer.ggml.token_type: 5 entries for 263 tokens"
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
fn damaged_merges_are_errors_and_not_panics() {
    // The smallest vocabulary that makes the library panic.
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
fn the_first_of_equal_tokens_counts_and_empty_ones_do_not() {
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
fn what_cannot_be_written_is_unk_or_an_error_and_never_dropped() {
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
        .encode("aé", Encode::default())
        .unwrap_err();
    assert_eq!(error.message(), "the vocabulary has no token for \"é\"");
    let t = gpt2(|v| v.tokens[usize::from(b'x')] = "gone").unwrap();
    assert_eq!(
        t.encode("x", Encode::default()).unwrap_err().message(),
        "the vocabulary has no token for \"x\""
    );
}

#[test]
fn a_long_run_of_spaces_is_right_or_refused() {
    let t = gpt2(|_| {}).unwrap();
    let right = ids(&t, &(" ".repeat(900_000) + "hello"));
    assert!(right[..899_999].iter().all(|&id| id == u32::from(b' ')));
    assert!(right[899_999..] == [260]);
    for spaces in [1_100_000, 5 << 20] {
        let long = " ".repeat(spaces) + "x";
        let error = t.encode(&long, Encode::default()).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    }
    // The same text in pieces that end is no trouble.
    assert_eq!(ids(&t, &"hello ".repeat(100_000)).len(), 100_001);
}

#[test]
fn sentencepiece_is_the_same_in_words() {
    let cut = llama(|_| {}).unwrap();
    // One token over a space forbids words.
    let whole = llama(|v| {
        v.tokens.push("b▁b▁b");
        v.types.push(1);
        v.scores.push(-9.0);
    });
    let text = "ab  aba b é".repeat(20_000);
    assert_eq!(ids(&cut, &text), ids(&whole.unwrap(), &text));
}

#[test]
fn gemma_4_takes_runs_of_line_ends_whole() {
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
fn harmony_goes_on_after_an_end_of_message() {
    let t = gpt2(|v| {
        v.tokens.extend(["<|end|>", "<|return|>", "<|call|>"]);
        v.types.extend([3, 3, 3]);
    });
    assert_eq!(t.unwrap().stops(), [261, 264, 265]);
    let t = gpt2(|v| {
        v.tokens.extend(["<|end|>", "<eos>"]);
        v.types.extend([3, 1]);
    });
    assert_eq!(
        t.unwrap().stops(),
        [261, 263],
        "a normal token is no stop by its spelling"
    );
}

#[test]
fn many_threads_may_encode_first() {
    let t = gpt2(|_| {}).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(ids(&t, "hello hello"), [259, 260]));
        }
    });
}
