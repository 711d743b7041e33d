import base64
import struct

import pytest

from transom.proxy.images import audio_tokens, image_size, image_tokens


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x06\0\0\0"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0" * 20


def jpeg(width: int, height: int, metadata: int = 100) -> bytes:
    segment = b"\xff\xe1" + struct.pack(">H", metadata + 2) + b"x" * metadata
    tables = b"\xff\xc4" + struct.pack(">H", 12) + b"t" * 10
    frame = b"\xff\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\0" * 9
    return b"\xff\xd8" + segment + tables + frame


def webp(kind: bytes, header: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + kind + b"\0\0\0\0" + header


def lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height))


def lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14))


def extended(width: int, height: int) -> bytes:
    return webp(b"VP8X", b"\0\0\0\0" + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3])


def url(content: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64," + base64.b64encode(content).decode()


FORMATS = [png, gif, jpeg, lossy, lossless, extended]


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (640, 480), (513, 2000)])
def test_the_size_is_read_from_the_header(make: object, size: tuple[int, int]) -> None:
    assert image_size(make(*size)) == size  # type: ignore[operator]


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("length", range(0, 30, 3))
def test_a_cut_off_header_is_no_error(make: object, length: int) -> None:
    size = image_size(make(640, 480)[:length])  # type: ignore[operator]
    assert size is None or min(size) > 0


@pytest.mark.parametrize(
    "content", [b"", b"BM123", png(0, 5), webp(b"ANIM", b""), b"\xff\xd8\xff", b"\xff\xd8junk" * 9]
)
def test_what_has_no_size_has_none(content: bytes) -> None:
    assert image_size(content) is None


# The first three are OpenAI's own examples; the others follow its rules.
@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((1024, 1024), 765),
        ((2048, 4096), 1105),
        ((4096, 8192), 1105),
        ((512, 512), 255),
        ((513, 512), 425),
        ((1, 1), 255),
        ((10_000, 1), 85 + 170 * 4),
        ((768, 768), 765),
        ((4_000_000_000, 4_000_000_000), 765),
    ],
)
def test_tiles_are_counted_by_the_published_rules(size: tuple[int, int], tokens: int) -> None:
    assert image_tokens(url(png(*size))) == tokens


def test_low_detail_is_flat() -> None:
    assert image_tokens(url(png(4000, 4000)), "low") == 85
    assert image_tokens("https://example.com/x.png", "low") == 85


@pytest.mark.parametrize(
    "address",
    ["https://example.com/cat.png", "", "data:", "data:image/png;base64,!!!", "data:image/png;base64,AAAA", "data:,x"],
)
def test_an_unknown_size_counts_as_1024_square(address: str) -> None:
    assert image_tokens(address) == 765
    assert image_tokens(address, "high") == 765


def test_a_jpeg_size_behind_large_metadata_is_found() -> None:
    assert image_tokens(url(jpeg(512, 512, metadata=65_000), "jpeg")) == 255


def test_a_wav_counts_ten_tokens_a_second() -> None:
    header = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0" + struct.pack("<IIHH", 8000, 16_000, 2, 16) + b"data"
    assert audio_tokens(base64.b64encode(header + b"\0" * (31_998 - len(header))).decode()) == 20


def test_a_sound_of_unknown_length_counts_by_its_bytes() -> None:
    assert audio_tokens("A" * 64_000) == 30
    assert audio_tokens("") == 0
    assert audio_tokens("not base64 é") > 0
