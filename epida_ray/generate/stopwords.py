"""Words that carry grammar and little meaning; EDA replaces none of them."""

from __future__ import annotations

_ENGLISH = """
a about above after again against ain ain't all also am an and any are aren't as at be because been before being below
between both but by can can't cannot could couldn't did didn't do does doesn't doing don don't down during each either
ever every few for from further had hadn't has hasn't have haven't having he he'd he'll he's her here here's hers
herself him himself his how how's i i'd i'll i'm i've if in into is isn't it it'd it'll it's its itself just let's ll
many may me might mightn't mine more most much must mustn't my myself needn't neither no nor not now of off on once
only or other ought our ours ourselves out over own re s same shan't she she'd she'll she's should shouldn't since so
some such t than that that'd that'll that's the their theirs them themselves then there there's these they they'd
they'll they're they've this those though through to too under until up upon us ve very was wasn't we we'd we'll we're
we've were weren't what what's when when's where where's whether which while who who's whom whose why why's will with
within without won't would wouldn't yet you you'd you'll you're you've your yours yourself yourselves
"""

STOP_WORDS: dict[str, frozenset[str]] = {"en": frozenset(_ENGLISH.split())}
"""By language code; a language that is not here has none."""
