"""The sources of data by name, and what the rest of hero needs of them."""

from hero.data.files.settings import FOUND as FOUND, FileSettings as FileSettings
from hero.data.source import Source as Source
from hero.data.tasks.store import SCORED as SCORED, SPLITS as SPLITS, DataSettings as DataSettings, Split as Split
from hero.data.tasks.store import TASKS as TASKS, data_summary as data_summary, generate as generate
from hero.data.tasks.store import get_task as get_task, load_split as load_split, split_path as split_path
from hero.data.tasks.store import load_trajectories as load_trajectories
from hero.data.tasks.task import Task as Task
