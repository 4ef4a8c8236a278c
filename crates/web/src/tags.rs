//! Attributes of tags, counted before the tokenizer has them: it compares each name with all before it in its tag, so that one tag of
//! megabytes would take minutes.
//!
//! ```text
//!  Text ─ < ─► Less ─ letter ─► Name ─► Between ─► Attribute ─► After, Value ─► Quoted, Bare ─► Between
//!                └ !, ? ─► Declared                                             > ends all but Quoted
//! ```
//!
//! These are the tokenizer's own states of tags (HTML Standard §13.2.5.6 and on). What it alone knows it is asked: whether a comment has
//! ended, and in the text of which element the page is.

use html5ever::LocalName;
use html5ever::tokenizer::Token;

/// Attributes of one tag that are looked at; those behind them are left out.
pub(crate) const MAX_ATTRIBUTES: usize = 128;

/// TagPlace in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TagPlace {
    Text,
    /// Behind `<`.
    Less,
    /// Behind `</`.
    LessSlash,
    /// In a comment, a document type, or what passes for one.
    Declared,
    /// In a tag's name.
    Name,
    /// Before an attribute, or the tag's end.
    Between,
    /// In an attribute's name.
    Attribute,
    /// Behind an attribute's name.
    After,
    /// Behind `=`.
    Value,
    /// In a value that ends with this quote.
    Quoted(u8),
    /// In a value without quotes.
    Bare,
}

/// Tokens that came of the last bytes, and the state that the tokenizer is in.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Element that the page is in the text of, which has no tags but its end.
    pub(crate) raw: Option<LocalName>,
    /// True if a comment or a document type has ended.
    pub(crate) declared: bool,
    /// True if text has come.
    pub(crate) text: bool,
}

impl Heard {
    /// Notes a token that is no tag.
    pub(crate) fn note(&mut self, token: &Token) {
        match token {
            Token::CommentToken(_) | Token::DoctypeToken(_) => self.declared = true,
            Token::CharacterTokens(_) | Token::NullCharacterToken => self.text = true,
            Token::TagToken(_) | Token::EOFToken | Token::ParseError(_) => {}
        }
    }

    /// All of it; only the element is kept.
    pub(crate) fn take(&mut self) -> Self {
        let raw = self.raw.clone();
        std::mem::replace(
            self,
            Self {
                raw,
                ..Self::default()
            },
        )
    }
}

/// Filter of a page's bytes on their way to the tokenizer.
pub(crate) struct TagFilter {
    most: usize,
    place: TagPlace,
    /// Element that the page is in the text of.
    raw: Option<LocalName>,
    /// Name of the tag, as far as it may be the end of that element.
    name: String,
    attributes: usize,
}

impl TagFilter {
    /// Filter that lets `most` attributes of each tag pass.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            place: TagPlace::Text,
            raw: None,
            name: String::new(),
            attributes: 0,
        }
    }

    /// True if the tokenizer is to have all before `byte`, and then that alone, for [`Self::judge`].
    pub(crate) fn is_doubtful(&self, byte: u8) -> bool {
        let script = self.raw.as_deref() == Some("script");
        script && self.place == TagPlace::Name && byte != b'>' && self.is_end(byte)
    }

    /// Takes in the next byte; true if the tokenizer is to have it.
    pub(crate) fn passes(&mut self, byte: u8) -> bool {
        let before = self.place;
        self.place = self.follow(byte);
        match self.place {
            TagPlace::Name => {
                if before != TagPlace::Name {
                    self.attributes = 0;
                    self.name.clear();
                }
                if self
                    .raw
                    .as_ref()
                    .is_some_and(|raw| self.name.len() <= raw.len())
                {
                    self.name.push(byte.to_ascii_lowercase().into());
                }
            }
            TagPlace::Attribute => self.attributes += usize::from(before != TagPlace::Attribute),
            _ => {}
        }
        let outside = matches!(
            self.place,
            TagPlace::Text
                | TagPlace::Less
                | TagPlace::LessSlash
                | TagPlace::Declared
                | TagPlace::Name
        );
        outside || self.attributes <= self.most
    }

    /// The tokenizer has had all so far.
    pub(crate) fn hear(&mut self, heard: Heard) {
        if self.place == TagPlace::Declared && heard.declared {
            self.place = TagPlace::Text;
        }
        self.raw = heard.raw;
    }

    /// The tokenizer has had a doubtful byte alone: in a script that looks like a comment, the end tag of one within it is `text`.
    pub(crate) fn judge(&mut self, text: bool) {
        if text {
            self.place = TagPlace::Text;
        }
    }

    /// True if `byte` ends the name of a tag which ends the element that the page is in the text of.
    fn is_end(&self, byte: u8) -> bool {
        let ends = is_space(byte) || matches!(byte, b'/' | b'>');
        ends && self.raw.as_deref() == Some(self.name.as_str())
    }

    fn follow(&self, byte: u8) -> TagPlace {
        let raw = self.raw.is_some();
        match (self.place, byte) {
            (TagPlace::Text | TagPlace::Less | TagPlace::LessSlash | TagPlace::Declared, _) => {
                self.follow_outside(byte)
            }
            (TagPlace::Name, _) if raw && !byte.is_ascii_alphabetic() && !self.is_end(byte) => {
                in_text(byte)
            }
            (TagPlace::Quoted(quote), _) if byte == quote => TagPlace::Between,
            (TagPlace::Quoted(_), _) => self.place,
            (_, b'>') => TagPlace::Text,
            (TagPlace::Value, _) if is_space(byte) => TagPlace::Value,
            (TagPlace::Value, b'"' | b'\'') => TagPlace::Quoted(byte),
            (TagPlace::Bare, _) if is_space(byte) => TagPlace::Between,
            (TagPlace::Value | TagPlace::Bare, _) => TagPlace::Bare,
            (TagPlace::Attribute | TagPlace::After, b'=') => TagPlace::Value,
            (TagPlace::Attribute | TagPlace::After, _) if is_space(byte) => TagPlace::After,
            (_, b'/') => TagPlace::Between,
            (_, _) if is_space(byte) => TagPlace::Between,
            (TagPlace::Name, _) => TagPlace::Name,
            (TagPlace::Between | TagPlace::Attribute | TagPlace::After, _) => TagPlace::Attribute,
        }
    }

    fn follow_outside(&self, byte: u8) -> TagPlace {
        let raw = self.raw.is_some();
        match (self.place, byte) {
            (TagPlace::Declared, _) => TagPlace::Declared,
            (TagPlace::Less, b'/') => TagPlace::LessSlash,
            (TagPlace::LessSlash, b'>') => TagPlace::Text,
            (TagPlace::Less, _) if byte.is_ascii_alphabetic() && !raw => TagPlace::Name,
            (TagPlace::LessSlash, _) if byte.is_ascii_alphabetic() => TagPlace::Name,
            (TagPlace::Less, b'!' | b'?') if !raw => TagPlace::Declared,
            (TagPlace::LessSlash, _) if !raw => TagPlace::Declared,
            _ => in_text(byte),
        }
    }
}

const fn in_text(byte: u8) -> TagPlace {
    match byte {
        b'<' => TagPlace::Less,
        _ => TagPlace::Text,
    }
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c')
}
