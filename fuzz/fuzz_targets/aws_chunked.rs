//! The aws-chunked decoder: bounded output, the same for any split, no prefix taken for a whole.
#![no_main]

use bytes::Bytes;
use goblin_store::s3::auth::ChunkVerifier;
use goblin_store::s3::aws_chunked::ChunkedDecoder;
use libfuzzer_sys::fuzz_target;

/// The payload and trailers of a whole body; `None` when it is broken or cut.
fn decode(pieces: &[&[u8]], signed: bool) -> Option<(Vec<u8>, Vec<(String, String)>)> {
    let chain = signed.then(|| {
        ChunkVerifier::new([7; 32], "20130524T000000Z".into(), "scope".into(), "seed".into())
    });
    let mut decoder = ChunkedDecoder::new(chain, true, None);
    let mut payload = Vec::new();
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece));
        while let Some(part) = decoder.next().ok()? {
            assert!(!part.is_empty());
            payload.extend_from_slice(&part);
        }
    }
    decoder.is_done().then(|| (payload, decoder.trailers().to_vec()))
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, body)) = data.split_first() else { return };
    let whole = decode(&[body], false);
    let at = usize::from(first) % (body.len() + 1);
    let (head, tail) = body.split_at(at);
    assert_eq!(whole, decode(&[head, tail], false));
    if let Some((payload, trailers)) = &whole {
        assert!(payload.len() < body.len());
        assert!(trailers.len() <= 17);
        // One line end more than needed is tolerated, so the end may be that much earlier.
        let cut = body.len().saturating_sub(3).min(at);
        assert_eq!(decode(&[&body[..cut]], false), None);
    }
    // Nobody can make a signature without the key.
    assert_eq!(decode(&[body], true), None);
});
