//! Makes pictures of the documentation small: a PNG with a palette of 96 colours in place of one of 16 million.
//!
//! The format is that of <https://www.w3.org/TR/png-3/>.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
const COLORS: usize = 96;

type Color = [u8; 3];

/// A picture of opaque pixels, line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Picture {
    width: usize,
    pixels: Vec<Color>,
}

/// A screenshot of Chromium with 96 colours: each pixel gets the nearest of them.
pub fn with_few_colors(png: &[u8]) -> Vec<u8> {
    let picture = decode(png);
    let palette = palette(&picture);
    encode(&picture, &palette)
}

/// The parts of a PNG: name and content.
fn chunks(png: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut rest = png.strip_prefix(SIGNATURE).expect("a PNG");
    let mut chunks = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        let (name, after) = after.split_at(4);
        let (content, after) = after.split_at(length);
        chunks.push((name, content));
        rest = &after[4..];
    }
    chunks
}

fn decode(png: &[u8]) -> Picture {
    let chunks = chunks(png);
    let header = chunks[0].1;
    let width = u32::from_be_bytes(header[..4].try_into().expect("four bytes")) as usize;
    // 8 bits for each of red, green, blue, and the opacity if there is one; not interlaced.
    let bytes = match header[8..13] {
        [8, 2, 0, 0, 0] => 3,
        [8, 6, 0, 0, 0] => 4,
        _ => panic!("another kind of PNG: {header:?}"),
    };
    let compressed: Vec<u8> =
        chunks.iter().filter(|(name, _)| *name == b"IDAT").flat_map(|(_, part)| *part).copied().collect();
    let mut filtered = Vec::new();
    ZlibDecoder::new(&*compressed).read_to_end(&mut filtered).expect("zlib");
    let mut above = vec![0; width * bytes];
    let mut pixels = Vec::with_capacity(filtered.len() / bytes);
    for line in filtered.chunks_exact(width * bytes + 1) {
        let line = unfiltered(line[0], &line[1..], &above, bytes);
        pixels.extend(line.chunks_exact(bytes).map(|pixel| [pixel[0], pixel[1], pixel[2]]));
        above = line;
    }
    Picture { width, pixels }
}

/// A line in which each byte is the difference from what the filter predicts by the bytes left of it and above.
fn unfiltered(filter: u8, line: &[u8], above: &[u8], bytes: usize) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(line.len());
    for (at, difference) in line.iter().enumerate() {
        let (left, corner) = match at.checked_sub(bytes) {
            Some(before) => (out[before], above[before]),
            None => (0, 0),
        };
        let predicted = match filter {
            0 => 0,
            1 => left,
            2 => above[at],
            3 => u16::midpoint(u16::from(left), u16::from(above[at])) as u8,
            4 => nearest_neighbour(left, above[at], corner),
            _ => panic!("filter {filter}"),
        };
        out.push(difference.wrapping_add(predicted));
    }
    out
}

/// The prediction by Paeth.
fn nearest_neighbour(left: u8, above: u8, corner: u8) -> u8 {
    let sum = i16::from(left) + i16::from(above) - i16::from(corner);
    let distance = |neighbour: u8| (sum - i16::from(neighbour)).abs();
    [left, above, corner].into_iter().min_by_key(|neighbour| distance(*neighbour)).expect("three")
}

/// Colours that are frequent and far from each other: the next one is that of which the most is lost without it.
fn palette(picture: &Picture) -> Vec<Color> {
    let mut counts: BTreeMap<Color, u64> = BTreeMap::new();
    picture.pixels.iter().for_each(|color| *counts.entry(*color).or_default() += 1);
    // Each colour with its count and its distance to the palette.
    let mut left: Vec<_> =
        counts.into_iter().map(|(color, count)| (color, count, u64::from(u16::MAX))).collect();
    let mut palette = Vec::new();
    while let Some(&(next, ..)) = left.iter().max_by_key(|(_, count, distance)| count * distance) {
        if palette.len() == COLORS {
            break;
        }
        palette.push(next);
        left.retain_mut(|(color, _, nearest)| {
            *nearest = (*nearest).min(distance(color, &next));
            *nearest > 0
        });
    }
    palette
}

fn distance(one: &Color, other: &Color) -> u64 {
    one.iter().zip(other).map(|(a, b)| u64::from(a.abs_diff(*b)).pow(2)).sum()
}

fn encode(picture: &Picture, palette: &[Color]) -> Vec<u8> {
    let mut known: HashMap<Color, u8> =
        palette.iter().enumerate().map(|(index, color)| (*color, index as u8)).collect();
    let nearest = |color: &Color| {
        let indexes = 0..palette.len();
        indexes.min_by_key(|index| distance(&palette[*index], color)).expect("a palette") as u8
    };
    let mut lines = Vec::new();
    for line in picture.pixels.chunks(picture.width) {
        lines.push(0);
        lines.extend(line.iter().map(|color| *known.entry(*color).or_insert_with(|| nearest(color))));
    }
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
    zlib.write_all(&lines).expect("memory");
    let size = [picture.width, picture.pixels.len() / picture.width].map(|size| (size as u32).to_be_bytes());
    let header = [size.as_flattened(), &[8, 3, 0, 0, 0]].concat();
    let mut png = SIGNATURE.to_vec();
    append(&mut png, b"IHDR", &header);
    append(&mut png, b"PLTE", palette.as_flattened());
    append(&mut png, b"IDAT", &zlib.finish().expect("memory"));
    append(&mut png, b"IEND", &[]);
    png
}

fn append(png: &mut Vec<u8>, name: &[u8], content: &[u8]) {
    let named = [name, content].concat();
    png.extend((content.len() as u32).to_be_bytes());
    png.extend(&named);
    let mut sum = flate2::Crc::new();
    sum.update(&named);
    png.extend(sum.sum().to_be_bytes());
}

#[test]
fn a_picture_of_few_colours_stays_as_it_is() {
    let color = |index: usize| [(index * 7 % 16) as u8 * 16, (index % 5) as u8, 200];
    let picture = Picture { width: 30, pixels: (0..600).map(color).collect() };
    let png = encode(&picture, &palette(&picture));
    let (header, colors) = (chunks(&png)[0].1, chunks(&png)[1].1);
    assert_eq!((header[8], header[9], colors.len()), (8, 3, 80 * 3), "a palette of 16 x 5 colours");
}

#[test]
fn every_filter_is_undone() {
    let (line, above) = ([1, 2, 3, 4, 5, 6], [10, 20, 30, 40, 50, 60]);
    let expected = [
        [1, 2, 3, 4, 5, 6],
        [1, 2, 3, 5, 7, 9],
        [11, 22, 33, 44, 55, 66],
        [6, 12, 18, 27, 36, 45],
        [11, 22, 33, 44, 55, 66],
    ];
    for (filter, expected) in (0..).zip(expected) {
        assert_eq!(unfiltered(filter, &line, &above, 3), expected, "filter {filter}");
    }
}
