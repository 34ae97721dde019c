"""Names of languages, as generators take them."""

from __future__ import annotations

from epida_ray.core.errors import RequestError

_ISO_639_1 = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo es
et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj
kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv
ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th
ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
_ISO_639_3 = """
arz ast azb bar ceb ckb crh csb dsb fil frp fur gsw hak hsb ilo kab krc lad lij lmo mad mai mni mwl nan nap nds nov nso
pam pms sah sat scn sco shn szl tet tyv udm vec war wuu yue
"""
"""Languages with many texts and no code of two letters."""
_CODES = frozenset((_ISO_639_1 + _ISO_639_3).split())


def base(language: str) -> str:
    """Return the part of a language's name that words, marks and keyboards are known by: `pt` of `pt-BR`."""
    code = language.strip().replace("_", "-").split("-")[0].lower() if isinstance(language, str) else ""
    if code not in _CODES:
        raise RequestError(f"the language {language!r} is unknown; give a code of ISO 639 such as en, de or pt-BR")
    return code
