//! The bytes of the file format, held still: what these tests encode must come out as it stands here, and what stands
//! here must read back. A change of either is a change of the format.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use super::blob::{Blob, BlobRef, NewBlob};
use super::change::{Change, CountedUsage, Create, NewRecord, SealPredecessor, TurnChange};
use super::codec::{Codec, Dictionary, Zstd};
use super::envelope::{self, Contents, Encoded, Packing};
use super::hash::RowHashes;
use super::hash::Seed;
use super::head::{
    Birth, Context, Head, Range, RunTail, SessionParts, StoreState, ToolsRef, Totals, Transcript,
};
use super::journal::Ledger;
use super::record::{
    self, Address, Body, Kind, Marker, RowRef, UsageBody, encode_marker, encode_row, encode_usage,
};
use crate::spend::{Money, SpendTally};
use crate::{
    Error, MessageUsage, Result, ToolFailure, TranscriptMessage, TranscriptMeta, TranscriptPart,
    TranscriptToolCall, TurnUsage, UsageCostSource,
};

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| u8::try_from(digit).unwrap())
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// Where nothing is stored elsewhere.
#[derive(Default)]
struct Nowhere(RefCell<Vec<u8>>);

impl Contents for Nowhere {
    fn append(&self, _: &BlobRef, _: &mut Vec<u8>) -> Result<()> {
        Err(Error::other("nothing was cut out"))
    }

    fn dictionary(&self, _: u32) -> Result<Arc<Dictionary>> {
        Err(Error::other("there is no dictionary"))
    }

    fn room(&self) -> &RefCell<Vec<u8>> {
        &self.0
    }
}

fn plain(seed: &Seed) -> Packing<'_> {
    Packing { seed, lz4: false }
}

fn seed() -> Seed {
    Seed::from_bytes([7; 32])
}

fn address() -> Address {
    Address {
        transcript: 7,
        seq: 300,
        uuid: 0x0193_7e6d_2c00_7abc_8def_0123_4567_89ab,
        at: 1_732_965_300_000_000,
    }
}

/// An assistant's row with something in every column that an assistant's row can have.
fn row() -> TranscriptMessage {
    let call = TranscriptToolCall {
        id: "call_1".to_owned(),
        name: "search".to_owned(),
        arguments: r#"{"q":"tide tables"}"#.to_owned(),
        extra_content: Some(json!({"signature": "s1"})),
    };
    let mut row = TranscriptMessage::assistant_with_calls("I look it up.", vec![call])
        .with_id("row-1")
        .with_extra_metadata(json!({"reasoning_content": "The harbour first."}))
        .with_tool_failure(ToolFailure::failed().with_detail("no answer"))
        .with_request_id("req-9")
        .with_turn_usage(TurnUsage {
            provider: "acme".to_owned(),
            model: "large-2".to_owned(),
            usage: MessageUsage {
                input: 1_200,
                output: 80,
                cached_input: 1_000,
                context_window: 200_000,
                cost_usd: 0.012_5,
                last_call_input: 1_200,
                last_call_output: 80,
                cost_source: Some(UsageCostSource::Charged),
            },
            ts: "2024-11-30T11:15:00Z".to_owned(),
            reasoning_content: None,
            tool_calls: Vec::new(),
            iteration: 2,
        });
    row.cache_breakpoints = vec![0, 250, 70_000];
    row.preserve_request_id = true;
    row
}

const ROW: &str = "
    000004b894bc0007fb2c0101937e6d2c007abc8def0123456789abfd00aa3ada3e500c00888877776666555544443333
    222211110000ffffeeeeddddccccbbbbaaaa999900000105726f772d3109617373697374616e740d49206c6f6f6b2069
    742075702e010663616c6c5f3106736561726368137b2271223a2274696465207461626c6573227d01127b227369676e
    6174757265223a227331227d000000012a7b22726561736f6e696e675f636f6e74656e74223a2254686520686172626f
    75722066697273742e227d0300fafc70110100010461636d65076c617267652d32fbb00450fbe803fc400d03009a9999
    999999893ffbb004500114323032342d31312d33305431313a31353a30305a00000201057265712d390101096e6f2061
    6e7377657201020114323032342d31312d33305431313a31353a30305a0100000000000000000000000000000003
";

#[test]
fn a_row_keeps_its_bytes() {
    let message = row();
    let encoded = encode_row(
        plain(&seed()),
        Kind::Row,
        address(),
        &RowRef {
            message: &message,
            hashes: RowHashes {
                identity: 0x1111_2222_3333_4444_5555_6666_7777_8888,
                legacy: None,
                whole: 0x9999_aaaa_bbbb_cccc_dddd_eeee_ffff_0000,
            },
            iteration: Some(2),
            ts: Some("2024-11-30T11:15:00Z"),
            shows_write_time: false,
            revises: Some(Uuid::from_u128(3)),
        },
    )
    .unwrap();
    assert_eq!(hex(&encoded.bytes), hex(&bytes(ROW)));

    let golden = bytes(ROW);
    let nowhere = Nowhere::default();
    let opened = record::open(&golden, 0, &nowhere).unwrap();
    assert_eq!((opened.kind, opened.address), (Kind::Row, address()));
    let stored = opened.row().unwrap();
    assert_eq!(stored.message, message);
    assert_eq!(stored.iteration, Some(2));
    assert_eq!(stored.ts.as_deref(), Some("2024-11-30T11:15:00Z"));
    assert_eq!(stored.revises, Some(Uuid::from_u128(3)));
}

const MEDIA_ROW: &str = "
    00002c642bd90107fb2c0101937e6d2c007abc8def0123456789abfd00aa3ada3e500c00010000000000000000000000
    00000000030000000000000000000000000000000102000000000000000000000000000000010004757365720b536565
    202074686572652e00000103000453656520011768747470733a2f2f612e6578616d706c652f312e706e670007207468
    6572652e012d536565205b4f485f494d4147453a68747470733a2f2f612e6578616d706c652f312e706e675d20746865
    72652e0000000000000000
";

#[test]
fn a_row_with_media_and_a_legacy_string_keeps_its_bytes() {
    let mut message =
        TranscriptMessage::user("See [OH_IMAGE:https://a.example/1.png] there.").normalized();
    message.preserve_request_id = true;
    let hashes = RowHashes {
        identity: 1,
        legacy: Some(2),
        whole: 3,
    };
    let encoded = encode_row(
        plain(&seed()),
        Kind::MarkerRow,
        address(),
        &RowRef {
            message: &message,
            hashes,
            iteration: None,
            ts: None,
            shows_write_time: true,
            revises: None,
        },
    )
    .unwrap();
    assert_eq!(hex(&encoded.bytes), hex(&bytes(MEDIA_ROW)));

    let golden = bytes(MEDIA_ROW);
    let nowhere = Nowhere::default();
    let opened = record::open(&golden, 0, &nowhere).unwrap();
    assert_eq!(opened.hashes().unwrap(), hashes);
    let stored = opened.row().unwrap();
    assert_eq!(
        stored.message.parts.as_deref().map(<[TranscriptPart]>::len),
        Some(3)
    );
    assert_eq!(stored.message, message);
    assert_eq!(stored.message.legacy_content(), message.legacy_content());
}

const MARKER: &str = "
    0000e996f5260407fb2c0101937e6d2c007abc8def0123456789abfd00aa3ada3e500c000207000209fbfb00fc701101
    0001057265712d3901147b2274726967676572223a22746f6b656e73227d
";

#[test]
fn a_compaction_keeps_its_bytes() {
    let marker = Marker {
        replacement: vec![
            Range {
                transcript: 7,
                first: 0,
                end: 2,
            },
            Range {
                transcript: 9,
                first: 251,
                end: 70_000,
            },
        ],
        request_id: Some("req-9".to_owned()),
        metadata: Some(json!({"trigger": "tokens"})),
    };
    let encoded = encode_marker(plain(&seed()), address(), &marker).unwrap();
    assert_eq!(hex(&encoded.bytes), hex(&bytes(MARKER)));

    let golden = bytes(MARKER);
    let nowhere = Nowhere::default();
    let Body::Marker(read) = record::open(&golden, 0, &nowhere).unwrap().body().unwrap() else {
        panic!("a marker reads back as one");
    };
    assert_eq!(read.replacement, marker.replacement);
    assert_eq!(read.request_id, marker.request_id);
    assert_eq!(read.metadata, marker.metadata);
}

const USAGE: &str = "
    00000808737c0507fb2c0101937e6d2c007abc8def0123456789abfd00aa3ada3e500c000461636d65076c617267652d
    32fbb00450fbe803fc400d03009a9999999999893ffbb004500114323032342d31312d33305431313a31353a30305a00
    000201057265712d39fb580201167b2270726f6d70745f746f6b656e73223a313230307d
";
const USAGE_BEFORE_CACHE_WRITES: &str = "
    0000f4a8e3890507fb2c0101937e6d2c007abc8def0123456789abfd00aa3ada3e500c000461636d65076c617267652d
    32fbb00450fbe803fc400d03009a9999999999893ffbb004500114323032342d31312d33305431313a31353a30305a00
    000201057265712d39
";

#[test]
fn a_usage_record_keeps_its_bytes_and_is_read_as_it_was_before_cache_writes() {
    let body = UsageBody {
        usage: row().turn_usage.unwrap(),
        request_id: Some("req-9".to_owned()),
        cache_write: 600,
        original: Some(r#"{"prompt_tokens":1200}"#.to_owned()),
    };
    let encoded = encode_usage(plain(&seed()), address(), &body).unwrap();
    assert_eq!(hex(&encoded.bytes), hex(&bytes(USAGE)));

    for (golden, cache_write, original) in [
        (USAGE, body.cache_write, body.original.as_deref()),
        (USAGE_BEFORE_CACHE_WRITES, 0, None),
    ] {
        let golden = bytes(golden);
        let nowhere = Nowhere::default();
        let Body::Usage(read) = record::open(&golden, 0, &nowhere).unwrap().body().unwrap() else {
            panic!("a usage record reads back as one");
        };
        assert_eq!(read.usage, body.usage);
        assert_eq!(read.request_id, body.request_id);
        assert_eq!(read.cache_write, cache_write);
        assert_eq!(read.original.as_deref(), original);
    }
}

const TOTALS: &str = "
    0300000000000000b0040000000000005000000000000000e80300000000000000dd0ee9020000000000000000000000
    580200000000000065ca724f
";
const TOTALS_BEFORE_CACHE_WRITES: &str = "
    0300000000000000b0040000000000005000000000000000e80300000000000000dd0ee9020000000000000000000000
    f3d37032
";

#[test]
fn totals_keep_their_bytes_and_are_read_as_they_were_before_cache_writes() {
    let totals = Totals {
        turns: 3,
        input_tokens: 1_200,
        output_tokens: 80,
        cached_input_tokens: 1_000,
        cost: 12_500_000_000,
        cache_write_tokens: 600,
    };
    assert_eq!(hex(&totals.encode().unwrap()), hex(&bytes(TOTALS)));
    assert_eq!(Totals::decode(&bytes(TOTALS)).unwrap(), totals);
    let before = Totals::decode(&bytes(TOTALS_BEFORE_CACHE_WRITES)).unwrap();
    assert_eq!(
        before,
        Totals {
            cache_write_tokens: 0,
            ..totals
        }
    );
}

const HEAD: &str = "
    0004010501fd006477b63e500c0007706c616e6e6572066e617469766514323032342d31312d33305431313a30303a30
    305a14323032342d31312d33305431313a31353a30305a03fbb00450fbe8039a9999999999893f01076167656e742d31
    0000000001087468726561642d310000000100fb2d0101070002010304fb2a01fe000102030405060708090a0b0c0d0e
    0f01014dfb2b0101125768656e206973206869676820746964653ffd00aa3ada3e500c00fbb00450fbe803fd00ba1dd2
    0500000001fbb00450fb0005fbb0045001076c617267652d32fc400d0300fd00ba1dd2050000000100000000fb200104
    fbe9030002fc880d010035887ca2
";

fn transcript() -> Transcript {
    let meta = TranscriptMeta::new("planner")
        .with_agent_id("agent-1")
        .with_created("2024-11-30T11:00:00Z")
        .with_updated("2024-11-30T11:15:00Z")
        .with_turn_count(3)
        .with_tokens(1_200, 80, 1_000)
        .with_charged_amount_usd(0.012_5)
        .with_thread_id("thread-1");
    Transcript {
        birth: Birth {
            session: 4,
            generation: 1,
            incarnation: 5,
            subagent: true,
            created_at: 1_732_965_000_000_000,
        },
        head: Head {
            meta: Arc::new(meta),
            via_session: true,
            sealed: false,
            next_seq: 301,
            context: Context {
                base: vec![Range {
                    transcript: 7,
                    first: 0,
                    end: 2,
                }],
                base_record: Some(3),
                tail_from: 4,
                rows: 298,
                digest: 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100,
            },
            tools: Some(ToolsRef { seq: 1, hash: 77 }),
            rows_stored: 299,
            title: Some("When is high tide?".to_owned()),
            updated_at: 1_732_965_300_000_000,
            spend: SpendTally {
                input_tokens: 1_200,
                output_tokens: 80,
                cached_input_tokens: 1_000,
                cost: Money(12_500_000_000),
                turns: 1,
                last_input_tokens: 1_200,
                last_output_tokens: 80,
                last_context_tokens: 1_280,
                last_context_input_tokens: 1_200,
                last_context_output_tokens: 80,
                model: Some("large-2".to_owned()),
                context_window: 200_000,
                priced: Money(12_500_000_000),
                priced_source: Some(UsageCostSource::Charged),
                unpriced_turns: 0,
                unpriced_input_tokens: 0,
                unpriced_output_tokens: 0,
                unpriced_cached_input_tokens: 0,
            },
        },
        runs: RunTail {
            first: 288,
            positions: vec![Some(1_000), None, Some(1_001), Some(70_000)],
        },
    }
}

#[test]
fn a_head_keeps_its_bytes() {
    let transcript = transcript();
    assert_eq!(hex(&transcript.encode().unwrap()), hex(&bytes(HEAD)));

    let read = Transcript::decode(&bytes(HEAD)).unwrap();
    assert_eq!(read.birth, transcript.birth);
    assert_eq!(read.head, transcript.head);
    assert_eq!(read.runs, transcript.runs);
}

const CHANGE: &str = "
    0000fd00aa3ada3e500c00080c636861745f706c616e6e6572020104636861740107706c616e6e65720104726f6f7401
    05010707706c616e6e6572066e617469766514323032342d31312d33305431313a30303a30305a14323032342d31312d
    33305431313a31353a30305a03fbb00450fbe8039a9999999999893f01076167656e742d310000000001087468726561
    642d310000000101fb2d0101070002010304fb2a01fe000102030405060708090a0b0c0d0e0f01014dfb2b0101125768
    656e206973206869676820746964653ffd00aa3ada3e500c00fbb00450fbe803fd00ba1dd20500000001fbb00450fb00
    05fbb0045001076c617267652d32fc400d0300fd00ba1dd2050000000100000000fb2d01feab8967452301ef8dbc7a00
    2c6d7e93010861207265636f7264010907050007636f6e74656e7401056b65792d3101fcc6b00e000461636d65076c61
    7267652d320101fbb00450fbe803fd00ba1dd205000000fb580207706c616e6e6572066e617469766514323032342d31
    312d33305431313a30303a30305a14323032342d31312d33305431313a31353a30305a03fbb00450fbe8039a99999999
    99893f01076167656e742d310000000001087468726561642d310000000100fb2d0101070002010304fb2a01fe000102
    030405060708090a0b0c0d0e0f01014dfb2b0101125768656e206973206869676820746964653ffd00aa3ada3e500c00
    fbb00450fbe803fd00ba1dd20500000001fbb00450fb0005fbb0045001076c617267652d32fc400d0300fd00ba1dd205
    00000001000000000100feab8967452301ef8dbc7a002c6d7e93010861207265636f7264010907050007636f6e74656e
    7401056b65792d3101fcc6b00e000461636d65076c617267652d320101fbb00450fbe803fd00ba1dd205000000fb5802
";

/// The first write of a successor, with something in everything that it can have.
fn change() -> Change {
    let record = |seq| NewRecord {
        seq,
        uuid: address().uuid,
        bytes: b"a record".to_vec(),
        blobs: vec![NewBlob {
            hash: 9,
            codec: Codec::Plain,
            len: 7,
            crc: 5,
            bytes: b"content".to_vec(),
        }],
        key: Some("key-1".to_owned()),
        usage: Some(CountedUsage {
            hour: 481_379,
            provider: "acme".to_owned(),
            model: "large-2".to_owned(),
            source: 1,
            totals: Totals {
                turns: 1,
                input_tokens: 1_200,
                output_tokens: 80,
                cached_input_tokens: 1_000,
                cache_write_tokens: 600,
                cost: 12_500_000_000,
            },
        }),
    };
    let head = transcript().head;
    Change::Turn(Box::new(TurnChange {
        at: address().at,
        transcript: 8,
        session: "chat_planner".to_owned(),
        generation: 2,
        named: Some(SessionParts {
            key: "chat".to_owned(),
            agent: Some("planner".to_owned()),
            ancestors: vec!["root".to_owned()],
        }),
        create: Some(Create {
            incarnation: 5,
            seal: Some(SealPredecessor {
                transcript: 7,
                head: Head {
                    sealed: true,
                    ..head.clone()
                },
                record: record(301),
            }),
        }),
        head,
        records: vec![record(0)],
    }))
}

#[test]
fn a_journaled_change_keeps_its_bytes() {
    let encoded = change().encode().unwrap();
    assert_eq!(hex(&encoded), hex(&bytes(CHANGE)));
    let read = Change::decode(&bytes(CHANGE)).unwrap();
    assert_eq!(format!("{read:?}"), format!("{:?}", change()));
    let mut newer = encoded;
    newer[0] = 1;
    assert!(Change::decode(&newer).is_err(), "of another version");
}

const STATE: &str = "
    fc70110100feab8967452301ef8dbc7a002c6d7e93010103feffffffffffffffffffffffffffffffff0100fc72110100
    52d9a04e
";
const STATE_BEFORE_THE_JOURNAL: &str = "
    fc70110100feab8967452301ef8dbc7a002c6d7e9301471e26e4
";

#[test]
fn the_state_of_the_store_keeps_its_bytes_and_is_read_as_it_was_before_the_journal() {
    let state = StoreState {
        sequence: 70_000,
        last_uuid: address().uuid,
        journal: Some(Ledger {
            epochs: [3, u128::MAX],
            active: 1,
            eventual: false,
            written: 70_002,
        }),
    };
    assert_eq!(hex(&state.encode().unwrap()), hex(&bytes(STATE)));
    assert_eq!(StoreState::decode(&bytes(STATE)).unwrap(), state);

    let before = StoreState::decode(&bytes(STATE_BEFORE_THE_JOURNAL)).unwrap();
    assert_eq!(
        before,
        StoreState {
            journal: None,
            ..state
        }
    );
}

/// Elsewhere as one content and one dictionary.
struct Elsewhere {
    content: String,
    dictionary: Vec<u8>,
    room: RefCell<Vec<u8>>,
}

impl Contents for Elsewhere {
    fn append(&self, reference: &BlobRef, out: &mut Vec<u8>) -> Result<()> {
        assert_eq!(
            reference.hash,
            seed().content(self.content.as_bytes()).to_le_bytes()
        );
        assert_eq!(reference.len, self.content.len() as u64);
        out.extend_from_slice(self.content.as_bytes());
        Ok(())
    }

    fn dictionary(&self, id: u32) -> Result<Arc<Dictionary>> {
        assert_eq!(id, 3);
        Ok(Arc::new(Dictionary::new(id, self.dictionary.clone())))
    }

    fn room(&self) -> &RefCell<Vec<u8>> {
        &self.room
    }
}

/// Large content between two small ones, and where it is found.
fn large_row() -> (TranscriptMessage, Elsewhere) {
    let content = "Wind from the west. ".repeat(256);
    let mut row = TranscriptMessage::tool_result("call_1", content.clone()).with_id("row-2");
    row.preserve_request_id = true;
    row.extra_metadata = Some(json!({"sources": ["tides", "tides", "tides", "tides", "tides"]}));
    let elsewhere = Elsewhere {
        content,
        dictionary: b"tool_result call_1 row- Wind from the west".to_vec(),
        room: RefCell::default(),
    };
    (row, elsewhere)
}

fn encode_large(row: &TranscriptMessage) -> Encoded {
    let row = RowRef {
        message: row,
        hashes: RowHashes {
            identity: 1,
            legacy: None,
            whole: 2,
        },
        iteration: None,
        ts: None,
        shows_write_time: false,
        revises: None,
    };
    encode_row(plain(&seed()), Kind::Row, address(), &row).unwrap()
}

const LARGE_ROW: &str = "
    0004eed06408014f66adbe93619590c40b7c98ea572e9a3dfb00140007fb2c0101937e6d2c007abc8def0123456789ab
    fd00aa3ada3e500c00010000000000000000000000000000000200000000000000000000000000000000000105726f77
    2d3204746f6f6cfb001400010663616c6c5f31000001357b22736f7572636573223a5b227469646573222c2274696465
    73222c227469646573222c227469646573222c227469646573225d7d00000000000000
";

#[test]
fn a_row_whose_content_is_stored_elsewhere_keeps_its_bytes() {
    let (row, elsewhere) = large_row();
    let encoded = encode_large(&row);
    assert_eq!(hex(&encoded.bytes), hex(&bytes(LARGE_ROW)));
    assert_eq!(encoded.blobs.len(), 1);
    assert_eq!(encoded.blobs[0].bytes, elsewhere.content.as_bytes());

    let golden = bytes(LARGE_ROW);
    let opened = record::open(&golden, 0, &elsewhere).unwrap();
    assert_eq!(opened.row().unwrap().message, row);
    // Neither header nor hashes need the content.
    let nowhere = Nowhere::default();
    let opened = record::open(&golden, 0, &nowhere).unwrap();
    assert_eq!(opened.hashes().unwrap().whole, 2);
    assert!(opened.row().is_err());
}

const PACKED_ROWS: [&str; 2] = [
    "
    000deed06408014f66adbe93619590c40b7c98ea572e9a3dfb001498fa110007fb2c0101937e6d2c007abc8def012345
    6789abfd00aa3ada3e500c00010001001a020f00ff240000000105726f772d3204746f6f6cfb001400010663616c6c5f
    31000001357b22736f7572636573223a5b227469646573222c08000c905d7d00000000000000
",
    "
    0016eed06408014f66adbe93619590c40b7c98ea572e9a3dfb0014980328b52ffd00003d0300b4050007fb2c0101937e
    6d2c007abc8def0123456789abfd00aa3ada3e500c00010002000105726f772d3204746f6f6cfb001400010663616c6c
    5f31000001357b22736f7572636573223a5b227469646573222c5d7d000000000000000300b0d2408060c8e009
",
];

/// How well something is packed may differ from one version of a library to the next; what is packed must unpack.
#[test]
fn packed_rows_read_back() {
    let (row, elsewhere) = large_row();
    let plain = bytes(LARGE_ROW);
    let dictionary = elsewhere.dictionary(3).unwrap();
    let mut zstd = Zstd::new(&dictionary).unwrap();
    let lz4 = envelope::repack(&plain, 1, None, &elsewhere).unwrap();
    let zstd = envelope::repack(&plain, 2, Some(&mut zstd), &elsewhere).unwrap();
    for (packed, golden) in [lz4, zstd].iter().zip(PACKED_ROWS) {
        for bytes in [packed, &bytes(golden)] {
            let opened = record::open(bytes, 0, &elsewhere).unwrap();
            assert_eq!(opened.row().unwrap().message, row);
        }
    }
}

const BLOB: &str = "
    803801000000000063000000000000000014000000000000d582a98002020200000000000000acac7b24
";

#[test]
fn an_entry_of_large_content_keeps_its_bytes() {
    let (_, elsewhere) = large_row();
    let new = NewBlob::new(&seed(), elsewhere.content.as_bytes(), false).unwrap();
    let entry = Blob::new(&new, 70_000).referenced();
    let moved = entry.moved(80_000, 99, Codec::Zstd, 2);
    assert_eq!(hex(&moved.encode().unwrap()), hex(&bytes(BLOB)));
    assert_eq!(Blob::decode(&bytes(BLOB)).unwrap(), moved);
}
