//! Fields of a head, of a request as of a response.

/// Fields in the order of the head, their names in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fields(Vec<(String, Vec<u8>)>);

impl Fields {
    pub(crate) fn of(parsed: &[httparse::Header<'_>]) -> Self {
        let field = |one: &httparse::Header<'_>| (one.name.to_ascii_lowercase(), one.value.into());
        Self(parsed.iter().map(field).collect())
    }

    /// Bytes of memory that they take.
    pub(crate) fn held(&self) -> usize {
        let one = |(name, value): &(String, Vec<u8>)| name.capacity() + value.capacity();
        let apart: usize = self.0.iter().map(one).sum();
        apart + self.0.capacity() * size_of::<(String, Vec<u8>)>()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Value of the first field of this name.
    pub(crate) fn value(&self, name: &str) -> Option<&[u8]> {
        self.values(name).next()
    }

    /// Values of all fields of this name.
    pub(crate) fn values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let named = move |(own, _): &&(String, Vec<u8>)| own == name;
        let fields = self.0.iter().filter(named);
        fields.map(|(_, value)| value.as_slice())
    }

    /// Members of the lists in all fields of this name, in lower case.
    pub(crate) fn tokens(&self, name: &str) -> Vec<String> {
        let members = |value| {
            let text = String::from_utf8_lossy(value);
            let members = text.split(',').map(|one| one.trim().to_ascii_lowercase());
            members.filter(|one| !one.is_empty()).collect::<Vec<_>>()
        };
        self.values(name).flat_map(members).collect()
    }
}
