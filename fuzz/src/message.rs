//! Rows: lifting, encoding, identity and JSON.

use transcript_redb::TranscriptMessage;

const ROLES: [&str; 5] = ["assistant", "tool", "user", "system", "critic"];

/// Any text as the content of a row of each role, and as the JSON of a row.
pub fn message(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for role in ROLES {
        check_text(role, &text);
    }
    if let Ok(row) = serde_json::from_str::<TranscriptMessage>(&text) {
        check_json(&row);
        check_json(&row.normalized());
    }
}

fn check_text(role: &str, text: &str) {
    let row = TranscriptMessage::new(role, text);
    let lifted = row.normalized();

    assert_eq!(lifted.legacy_content(), text, "lifting keeps the text");
    assert_eq!(row.legacy_content(), text, "a bare row is its text");
    let again = lifted.normalized();
    assert_eq!(again, lifted, "lifting twice is lifting once");
    assert_eq!(again.legacy_content(), text);
    assert_eq!(TranscriptMessage::from_legacy(role, text), lifted);

    for (left, right) in [
        (&row, &row),
        (&lifted, &lifted),
        (&row, &lifted),
        (&lifted, &row),
    ] {
        assert!(left.same_row_as(right), "a row is the row it is lifted to");
    }
    assert_eq!(row.display_content(), lifted.display_content());

    check_json(&row);
    check_json(&lifted);
    check_encoding(&lifted);
}

/// The JSON form gives the row back.
fn check_json(row: &TranscriptMessage) {
    let json = serde_json::to_string(row).expect("a row is JSON");
    let read: TranscriptMessage = serde_json::from_str(&json).expect("its JSON is a row");
    assert_eq!(&read, row, "JSON keeps the row");
    assert_eq!(read.legacy_content(), row.legacy_content());
    assert!(read.same_row_as(row) && row.same_row_as(&read));
}

/// A typed row that forgot its text is encoded to a text that means the same.
fn check_encoding(lifted: &TranscriptMessage) {
    if !lifted.is_typed() {
        return;
    }
    let mut bare = lifted.clone();
    bare.legacy = transcript_redb::LegacyText::default();
    let encoded = TranscriptMessage::from_legacy(&*bare.role, bare.legacy_content());
    assert!(
        encoded.same_row_as(&bare),
        "the encoding of a typed row means that row"
    );
}
