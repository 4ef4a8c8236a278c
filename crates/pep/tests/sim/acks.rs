//! What acknowledgements cost the return link, and that they never stay away.
