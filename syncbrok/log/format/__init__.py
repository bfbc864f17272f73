"""The bytes of records: facts to bytes and back. Pure; no file is touched."""
