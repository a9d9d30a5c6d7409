//! Header blocks: names and values, compressed with a dictionary that both ends know.
//!
//! The compression goes on from block to block, so each direction of a connection has one state, and every block
//! must be taken in order. What a block may grow to is bounded.

use super::{Headers, SpdyError};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Largest block, uncompressed. Streams are opened with a handful of short headers.
const MAX_BLOCK: usize = 64 << 10;

/// The words of the dictionary of SPDY/3; each stands behind its length.
const WORDS: [&str; 65] = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

/// What follows the words.
const TAIL: &str = concat!(
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Au",
    "thoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidd",
    "en404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr Ma",
    "y Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,imag",
    "e/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicpri",
    "vatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
);

/// The dictionary of SPDY/3.
fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1423);
    for word in WORDS {
        push(&mut bytes, word);
    }
    bytes.extend_from_slice(TAIL.as_bytes());
    bytes
}

/// Text behind its length.
fn push(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// Makes blocks.
#[derive(Debug)]
pub(super) struct Deflater(Option<Compress>);

impl Default for Deflater {
    fn default() -> Self {
        let mut compress = Compress::new(Compression::best(), true);
        let ready = compress.set_dictionary(&dictionary()).is_ok();
        Self(ready.then_some(compress))
    }
}

impl Deflater {
    pub(super) fn block(&mut self, headers: &Headers) -> Result<Vec<u8>, SpdyError> {
        let broken = || SpdyError::Protocol("headers can't be compressed");
        let compress = self.0.as_mut().ok_or_else(broken)?;
        let mut plain = Vec::new();
        plain.extend(u32::try_from(headers.len()).unwrap_or(u32::MAX).to_be_bytes());
        for (name, value) in headers {
            push(&mut plain, &name.to_ascii_lowercase());
            push(&mut plain, value);
        }
        let mut block = Vec::with_capacity(plain.len() + 64);
        let mut rest = plain.as_slice();
        loop {
            let before = compress.total_in();
            let status = compress.compress_vec(rest, &mut block, FlushCompress::Sync).map_err(|_| broken())?;
            let taken = usize::try_from(compress.total_in() - before).unwrap_or(rest.len());
            rest = rest.get(taken..).unwrap_or_default();
            // A flush is whole once there was room left.
            if rest.is_empty() && status == Status::Ok && block.len() < block.capacity() {
                return Ok(block);
            }
            block.reserve(256);
        }
    }
}

/// Reads blocks.
#[derive(Debug)]
pub(super) struct Inflater(Decompress);

impl Default for Inflater {
    fn default() -> Self {
        Self(Decompress::new(true))
    }
}

impl Inflater {
    pub(super) fn headers(&mut self, block: &[u8]) -> Result<Headers, SpdyError> {
        parse(&self.inflate(block)?)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let mut plain = Vec::with_capacity(1024);
        loop {
            let (before_in, before_out) = (self.0.total_in(), self.0.total_out());
            let inflated = self.0.decompress_vec(block, &mut plain, FlushDecompress::Sync);
            let taken = usize::try_from(self.0.total_in() - before_in).unwrap_or(block.len());
            block = block.get(taken..).unwrap_or_default();
            match inflated {
                Err(error) if error.needs_dictionary().is_some() => {
                    let known = self.0.set_dictionary(&dictionary());
                    known.map_err(|_| SpdyError::Protocol("headers use another dictionary"))?;
                    continue;
                }
                Err(_) => return Err(SpdyError::Protocol("headers are not compressed as they should be")),
                Ok(_) => {}
            }
            let stuck = taken == 0 && self.0.total_out() == before_out;
            if block.is_empty() && plain.len() < plain.capacity() {
                return Ok(plain);
            }
            if stuck && plain.len() < plain.capacity() {
                return Err(SpdyError::Protocol("headers are not compressed as they should be"));
            }
            if plain.len() >= MAX_BLOCK {
                return Err(SpdyError::Protocol("headers are too long"));
            }
            plain.reserve(1024);
        }
    }
}

fn parse(mut plain: &[u8]) -> Result<Headers, SpdyError> {
    let count = number(&mut plain)?;
    let mut headers = Headers::new();
    for _ in 0..count {
        let name = text(&mut plain)?;
        headers.push((name, text(&mut plain)?));
    }
    Ok(headers)
}

fn number(plain: &mut &[u8]) -> Result<u32, SpdyError> {
    let (number, rest) = plain.split_first_chunk::<4>().ok_or(SpdyError::Protocol("headers are cut off"))?;
    *plain = rest;
    Ok(u32::from_be_bytes(*number))
}

fn text(plain: &mut &[u8]) -> Result<String, SpdyError> {
    let length = usize::try_from(number(plain)?).unwrap_or(usize::MAX);
    let (text, rest) = plain.split_at_checked(length).ok_or(SpdyError::Protocol("headers are cut off"))?;
    *plain = rest;
    Ok(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_of_the_standard() {
        let bytes = dictionary();
        let (mut low, mut high) = (1_u32, 0_u32);
        for byte in &bytes {
            low = (low + u32::from(*byte)) % 65521;
            high = (high + low) % 65521;
        }
        assert_eq!((bytes.len(), high << 16 | low), (1423, 0xe3c6_a7c2));
    }

    #[test]
    fn blocks_build_on_each_other() {
        let (mut deflater, mut inflater) = (Deflater::default(), Inflater::default());
        let mut lengths = Vec::new();
        for round in 0..50 {
            let headers = vec![
                ("StreamType".to_owned(), "stdout".to_owned()),
                ("request".to_owned(), format!("{round}")),
                ("long".to_owned(), "x".repeat(round * 40)),
            ];
            let block = deflater.block(&headers).unwrap();
            lengths.push(block.len());
            let mut read = inflater.headers(&block).unwrap();
            assert_eq!(read[0].0, "streamtype");
            read[0].0 = "StreamType".to_owned();
            assert_eq!(read, headers);
        }
        assert!(lengths[1] < lengths[0], "{lengths:?}");
    }

    #[test]
    fn bombs_and_cut_blocks_are_refused() {
        let mut deflater = Deflater::default();
        let bomb = deflater.block(&vec![("a".to_owned(), "0".repeat(1 << 20))]).unwrap();
        assert!(bomb.len() < 4096);
        let error = Inflater::default().headers(&bomb).unwrap_err().to_string();
        assert!(error.contains("too long"), "{error}");
        let block = Deflater::default().block(&vec![("name".to_owned(), "value".to_owned())]).unwrap();
        for length in 0..block.len() {
            // The last bytes only say that the block is whole.
            match Inflater::default().headers(&block[..length]) {
                Ok(headers) => assert_eq!(headers, [("name".to_owned(), "value".to_owned())]),
                Err(error) => assert!(matches!(error, SpdyError::Protocol(_))),
            }
        }
        Inflater::default().headers(&block[..block.len() / 2]).unwrap_err();
    }

    #[test]
    fn a_block_of_a_go_runtime_is_read() {
        // `{"streamtype": "stdin"}`, as the first block of a connection.
        let block = b"\x78\xf9\xe3\xc6\xa7\xc2\x62\x60\x60\x60\x04\xa7\xb3\x92\xa2\xd4\xc4\x5c\x68\x51\xc2\x5a\x5c\x92\x92\x99\x07\
            \x00\x00\x00\xff\xff";
        assert_eq!(Inflater::default().headers(block).unwrap(), [("streamtype".to_owned(), "stdin".to_owned())]);
    }
}
