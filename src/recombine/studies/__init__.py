"""What we ask: one file a question."""

PRESETS = ("smoke", "quick", "standard", "paper")

REGISTRY = {
    "data-scaling": "recombine.studies.data_scaling:DataScaling",
    "model-scaling": "recombine.studies.model_scaling:ModelScaling",
    "coverage": "recombine.studies.coverage:Coverage",
    "decodability": "recombine.studies.decodability:DecodabilityStudy",
    "boundary": "recombine.studies.boundary:Boundary",
    "encodings": "recombine.studies.encodings:EncodingsStudy",
    "preferences": "recombine.studies.preferences:PreferencesStudy",
    "goals": "recombine.studies.goals:GoalsStudy",
    "architectures": "recombine.studies.architectures:Architectures",
    "construction": "recombine.studies.construction:ConstructionStudy",
    "law": "recombine.studies.law:Law",
    "preference-law": "recombine.studies.preference_law:PreferenceLaw",
    "images": "recombine.studies.images:Images",
    "sequences": "recombine.studies.sequences:Sequences",
    "subgraphs": "recombine.studies.subgraphs:SubgraphsStudy",
    "probability": "recombine.studies.probability:ProbabilityStudy",
    "constraints": "recombine.studies.constraints:ConstraintsStudy",
    "subnetworks": "recombine.studies.subnetworks:SubnetworksStudy",
    "anatomy": "recombine.studies.anatomy:Anatomy",
    "fracture": "recombine.studies.fracture:FractureStudy",
    "symmetry": "recombine.studies.symmetry:SymmetryStudy",
    "binding": "recombine.studies.binding:BindingStudy",
    "collection": "recombine.studies.collection:Collection",
    "foretold": "recombine.studies.foretold:ForetoldStudy",
}
