"""The shapes of the answers, for the OpenAPI document."""

from typing import Any

Schema = dict[str, Any]


def _object(required: Schema, optional: Schema | None = None) -> Schema:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def _list(items: Schema, **bounds: int) -> Schema:
    return {"type": "array", "items": items, **bounds}


def _or_none(kind: str) -> Schema:
    return {"type": [kind, "null"]}


_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number"}
_YES: Schema = {"type": "boolean"}
_SIDES = _list({"type": "integer", "minimum": 1}, minItems=2, maxItems=2)
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_CLASS = {"index": _COUNT, "label": _or_none("string"), "probability": _SHARE}
_TOP = _list({"$ref": "#/components/schemas/Class"})
_ANSWERED = {"frames": _COUNT, "generation": _COUNT}
_ABILITIES = (
    "predictions", "embeddings", "attention", "rollout", "lens", "distance", "positions", "filters", "occlusion",
)  # fmt: skip

SCHEMAS: dict[str, Schema] = {
    "Error": _object({"error": _object({"code": _TEXT, "message": _TEXT})}),
    "Health": _object({"status": {"const": "ok"}}),
    "Readiness": _object({"ready": _YES}, {"reason": _TEXT}),
    "Document": {"type": "object"},
    "Class": _object({**_CLASS, "logit": _NUMBER}),
    "Model": _object(
        {
            "name": _TEXT,
            "generation": _COUNT,
            "network": _TEXT,
            "kind": {"enum": ["vit", "hybrid", "bit", "peer"]},
            "parameters": _or_none("integer"),
            "backend": _TEXT,
            "labels": {"type": ["array", "null"], "items": _TEXT},
            "num_classes": _COUNT,
            "channels": _COUNT,
            "image_size": _SIDES,
            "patch_size": {"type": ["array", "null"], "items": _COUNT},
            "stem": {"type": ["object", "null"]},
            "grid": _SIDES,
            "tokens": _COUNT,
            "prefix_tokens": _COUNT,
            "class_token": _YES,
            "registers": _COUNT,
            "width": _or_none("integer"),
            "depth": _or_none("integer"),
            "num_heads": _or_none("integer"),
            "head_dim": _or_none("integer"),
            "mlp_width": _or_none("integer"),
            "position": _or_none("string"),
            "pool": _or_none("string"),
            "loss": {"enum": ["softmax", "sigmoid"]},
            "preprocessing": {"type": "object"},
            "can": _object(dict.fromkeys(_ABILITIES, _YES)),
            "limits": _object({"bytes": _COUNT, "pixels": _COUNT, "seconds": _NUMBER}),
        }
    ),
    "Predictions": _object(
        {"top": _TOP, **_ANSWERED},
        {
            "seconds": _object({"queue": _NUMBER, "decode": _NUMBER, "model": _NUMBER}),
            "logits": _list(_NUMBER),
        },
    ),
    "Embeddings": _object({"features": _list(_NUMBER), **_ANSWERED}),
    "Inspections": _object(
        {"generation": _COUNT},
        {
            "top": _TOP,
            "frames": _COUNT,
            "seen": _object({"png": _TEXT, "height": _COUNT, "width": _COUNT}),
            "rollout": _list(_list(_NUMBER)),
            "maps": _list(_list(_list(_list(_NUMBER)))),
            "lens": _list(_object({"layer": _COUNT, "top": _list(_object(_CLASS))})),
            "distance": _list(_list(_NUMBER)),
        },
    ),
    "Occlusions": _object({"top": _TOP, "covered": _list(_COUNT), "generation": _COUNT}, {"frames": _COUNT}),
    "Filters": _object(
        {
            "layer": _TEXT,
            "count": _COUNT,
            "shares": _list(_NUMBER),
            "components": _list(_list(_list(_list(_SHARE)))),
        },
        {"generation": _COUNT},
    ),
}
