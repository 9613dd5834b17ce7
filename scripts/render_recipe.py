"""Renders the conda recipe for each platform, and prints the requirements of each.

Needs py-rattler-build, but no channel.
"""

from __future__ import annotations

from pathlib import Path

import rattler_build

FOLDER = Path(__file__).parent.parent / "conda"

for platform in ("linux-64", "linux-aarch64", "osx-64", "osx-arm64"):
    target = rattler_build.PlatformConfig(target_platform=platform)
    variants = rattler_build.VariantConfig.from_file_with_context(
        FOLDER / "variants.yaml", rattler_build.JinjaConfig(platform=target)
    )
    recipe = rattler_build.Stage0Recipe.from_file(FOLDER / "recipe.yaml")
    for variant in recipe.render(variants, rattler_build.RenderConfig(platform=target)):
        package, asked = variant.recipe.package, variant.recipe.requirements
        print(f"{platform}: {package.name} {package.version}")
        print(f"  build: {', '.join(map(str, asked.build))}")
        print(f"  host: {', '.join(map(str, asked.host))}")
        print(f"  run: {', '.join(map(str, asked.run))}")
