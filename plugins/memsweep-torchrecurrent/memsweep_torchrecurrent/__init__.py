"""The recurrent layers of torchrecurrent as units of memsweep's deep models."""
