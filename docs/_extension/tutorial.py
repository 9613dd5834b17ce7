"""Pictures of what the examples of a page compute."""

from __future__ import annotations

import doctest
import functools
import re
from pathlib import Path
from typing import Any

import numpy as np

DOCS = Path(__file__).parents[1]
EXAMPLE = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SIDE = 200  # pixels of a pooled box on the page


@functools.cache
def session(page: str) -> dict[str, Any]:
    """Return the variables of a page's examples after they have run."""
    names: dict[str, Any] = {}
    for block in EXAMPLE.findall((DOCS / f"{page}.md").read_text()):
        for example in doctest.DocTestParser().get_examples(block):
            try:
                exec(example.source, names)
            except Exception:
                if example.exc_msg is None:
                    raise
    return names


def shown(page: str, name: str, *labels: str) -> str:
    """Return a variable of a page as pictures side by side.

    The variable is a picture of Pillow, or an array (K, 3, rows, columns) of values from 0 to 255.
    """
    images = [_as_image(one) for one in _listed(session(page)[name])]
    blocks = []
    for number, image in enumerate(images):
        file = f"{page.replace('/', '-')}-{name}-{number}.png"
        (DOCS / "_generated").mkdir(exist_ok=True)
        image.save(DOCS / "_generated" / file)
        label = labels[number] if number < len(labels) else f"{name}[{number}]"
        text = f"\n{label}\n" if number < len(labels) else ""
        blocks.append(f"::::{{container}} picture\n![{label}](_generated/{file})\n{text}::::\n")
    kind = "pictures" if len(images) == 1 else "pictures gallery"
    return "\n".join([f":::::{{container}} {kind}", *blocks, ":::::"])


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, np.ndarray) else [value]


def _as_image(value: Any) -> Any:
    from PIL import Image  # only the site needs it

    if not isinstance(value, np.ndarray):
        return value
    pixels = np.clip(np.rint(value), 0, 255).astype(np.uint8).transpose(1, 2, 0)
    image = Image.fromarray(pixels)
    ratio = max(SIDE // max(image.size), 1)
    return image.resize((image.width * ratio, image.height * ratio), Image.Resampling.NEAREST)
