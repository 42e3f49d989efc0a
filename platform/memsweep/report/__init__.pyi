from memsweep.report.analysis.contents import judge as judge
from memsweep.report.publish import ReportPaths as ReportPaths
from memsweep.report.publish import build as build
from memsweep.report.values.side_by_side import compare as compare
