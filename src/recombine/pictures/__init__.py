"""Your own generator: decodability against composition success, for pipelines of `diffusers`."""

from recombine._lazy import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "FAMILIES": "recombine.pictures.prompts",
        "JudgeError": "recombine.pictures.judge",
        "PictureReading": "recombine.pictures.reading",
        "PromptFamily": "recombine.pictures.family",
        "Recorder": "recombine.pictures.hooks",
        "Sampling": "recombine.pictures.shots",
        "Scene": "recombine.pictures.family",
        "Slot": "recombine.pictures.family",
        "Things": "recombine.pictures.family",
        "VisionJudge": "recombine.pictures.judge",
        "family_named": "recombine.pictures.prompts",
        "load": "recombine.pictures.pipelines",
        "read_pipeline": "recombine.pictures.reading",
    },
)
