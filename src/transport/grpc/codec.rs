//! A protobuf codec for messages of a few hundred bytes. tonic's own allocates 8 KiB for each, which costs more than
//! decoding it. The generated server uses this codec, because `build.rs` names it.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// A request with two entries has about 70 bytes, an answer with headers about 200. Buffers grow if needed.
const REQUEST_BYTES: usize = 128;
const ANSWER_BYTES: usize = 256;
/// Matters only for streams of messages; tonic's default.
const YIELD_THRESHOLD: usize = 32 * 1024;

/// Encodes `T`, decodes `U`.
#[derive(Debug)]
pub struct SmallBuffers<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallBuffers<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallBuffers<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(ANSWER_BYTES, YIELD_THRESHOLD))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(REQUEST_BYTES, YIELD_THRESHOLD))
    }
}
