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

/// Place in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
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
    place: Place,
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
            place: Place::Text,
            raw: None,
            name: String::new(),
            attributes: 0,
        }
    }

    /// True if the tokenizer is to have all before `byte`, and then that alone, for [`Self::judge`].
    pub(crate) fn is_doubtful(&self, byte: u8) -> bool {
        let script = self.raw.as_deref() == Some("script");
        script && self.place == Place::Name && byte != b'>' && self.is_end(byte)
    }

    /// Takes in the next byte; true if the tokenizer is to have it.
    pub(crate) fn passes(&mut self, byte: u8) -> bool {
        let before = self.place;
        self.place = self.follow(byte);
        match self.place {
            Place::Name => {
                if before != Place::Name {
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
            Place::Attribute => self.attributes += usize::from(before != Place::Attribute),
            _ => {}
        }
        let outside = matches!(
            self.place,
            Place::Text | Place::Less | Place::LessSlash | Place::Declared | Place::Name
        );
        outside || self.attributes <= self.most
    }

    /// The tokenizer has had all so far.
    pub(crate) fn hear(&mut self, heard: Heard) {
        if self.place == Place::Declared && heard.declared {
            self.place = Place::Text;
        }
        self.raw = heard.raw;
    }

    /// The tokenizer has had a doubtful byte alone: in a script that looks like a comment, the end tag of one within it is `text`.
    pub(crate) fn judge(&mut self, text: bool) {
        if text {
            self.place = Place::Text;
        }
    }

    /// True if `byte` ends the name of a tag which ends the element that the page is in the text of.
    fn is_end(&self, byte: u8) -> bool {
        let ends = is_space(byte) || matches!(byte, b'/' | b'>');
        ends && self.raw.as_deref() == Some(self.name.as_str())
    }

    fn follow(&self, byte: u8) -> Place {
        let raw = self.raw.is_some();
        match (self.place, byte) {
            (Place::Text | Place::Less | Place::LessSlash | Place::Declared, _) => {
                self.follow_outside(byte)
            }
            (Place::Name, _) if raw && !byte.is_ascii_alphabetic() && !self.is_end(byte) => {
                in_text(byte)
            }
            (Place::Quoted(quote), _) if byte == quote => Place::Between,
            (Place::Quoted(_), _) => self.place,
            (_, b'>') => Place::Text,
            (Place::Value, _) if is_space(byte) => Place::Value,
            (Place::Value, b'"' | b'\'') => Place::Quoted(byte),
            (Place::Bare, _) if is_space(byte) => Place::Between,
            (Place::Value | Place::Bare, _) => Place::Bare,
            (Place::Attribute | Place::After, b'=') => Place::Value,
            (Place::Attribute | Place::After, _) if is_space(byte) => Place::After,
            (_, b'/') => Place::Between,
            (_, _) if is_space(byte) => Place::Between,
            (Place::Name, _) => Place::Name,
            (Place::Between | Place::Attribute | Place::After, _) => Place::Attribute,
        }
    }

    fn follow_outside(&self, byte: u8) -> Place {
        let raw = self.raw.is_some();
        match (self.place, byte) {
            (Place::Declared, _) => Place::Declared,
            (Place::Less, b'/') => Place::LessSlash,
            (Place::LessSlash, b'>') => Place::Text,
            (Place::Less, _) if byte.is_ascii_alphabetic() && !raw => Place::Name,
            (Place::LessSlash, _) if byte.is_ascii_alphabetic() => Place::Name,
            (Place::Less, b'!' | b'?') if !raw => Place::Declared,
            (Place::LessSlash, _) if !raw => Place::Declared,
            _ => in_text(byte),
        }
    }
}

const fn in_text(byte: u8) -> Place {
    match byte {
        b'<' => Place::Less,
        _ => Place::Text,
    }
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c')
}
