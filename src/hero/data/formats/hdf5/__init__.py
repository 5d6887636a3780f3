"""Readers of HDF5 files, in the order in which they are asked: the more a layout says about itself, the earlier."""

from __future__ import annotations

from hero.data.formats.containers import Reader
from hero.data.formats.hdf5.dedalus import is_dedalus, join_dedalus, read_dedalus
from hero.data.formats.hdf5.matlab73 import is_matlab73, read_matlab73
from hero.data.formats.hdf5.others import (
    is_array,
    is_own,
    is_particles,
    read_array,
    read_own,
    refuse_particles,
)
from hero.data.formats.hdf5.pbdl import is_pbdl, read_pbdl
from hero.data.formats.hdf5.pdearena import is_pdearena, read_pdearena
from hero.data.formats.hdf5.pdebench import (
    is_grouped,
    is_incompressible,
    is_pdebench,
    read_grouped,
    read_incompressible,
    read_pdebench,
)
from hero.data.formats.hdf5.poseidon import is_dpot, is_poseidon, read_dpot, read_poseidon
from hero.data.formats.hdf5.predictions import is_prediction, read_prediction
from hero.data.formats.hdf5.single_run import (
    is_bubbleml,
    is_era5,
    is_realpdebench,
    read_bubbleml,
    read_era5,
    read_realpdebench,
)
from hero.data.formats.hdf5.well import is_well, join_well, read_well

__all__ = ["HDF5_READERS"]

HDF5_READERS = {
    "hero": Reader("hero", "hdf5", is_own, read_own),
    "prediction": Reader("hero, predicted", "hdf5", is_prediction, read_prediction),
    "well": Reader("The Well", "hdf5", is_well, read_well, join_well),
    "dedalus": Reader("Dedalus", "hdf5", is_dedalus, read_dedalus, join_dedalus),
    "lagrangebench": Reader("LagrangeBench", "hdf5", is_particles, refuse_particles),
    "pdebench": Reader("PDEBench", "hdf5", is_pdebench, read_pdebench),
    "pdebench-incompressible": Reader("PDEBench, incompressible", "hdf5", is_incompressible, read_incompressible),
    "pdebench-groups": Reader("PDEBench, one group per trajectory", "hdf5", is_grouped, read_grouped),
    "pdearena": Reader("PDEArena", "hdf5", is_pdearena, read_pdearena),
    "pbdl": Reader("PBDL", "hdf5", is_pbdl, read_pbdl),
    "bubbleml": Reader("BubbleML", "hdf5", is_bubbleml, read_bubbleml),
    "realpdebench": Reader("RealPDEBench", "hdf5", is_realpdebench, read_realpdebench),
    "era5": Reader("PhysicsNeMo ERA5", "hdf5", is_era5, read_era5),
    "matlab73": Reader("MATLAB 7.3", "hdf5", is_matlab73, read_matlab73),
    "poseidon": Reader("Poseidon", "hdf5", is_poseidon, read_poseidon),
    "dpot": Reader("DPOT", "hdf5", is_dpot, read_dpot),
    "array": Reader("HDF5 with one array", "hdf5", is_array, read_array),
}
