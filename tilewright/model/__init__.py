"""From a model to an answer: `tilewright.compile(model)` gives a function of the model's inputs."""
