"""Options of Spark that load or run code are refused: who may write the configuration must not get to run programs."""

from __future__ import annotations

import pytest

from laneway.cli import _main
from laneway.errors import SettingsError
from laneway.settings import load

KEYS = """
spark.plugins spark.plugins.defaultList spark.extraListeners spark.jars spark.jars.packages spark.jars.repositories
spark.jars.ivy spark.jars.ivySettings spark.files spark.archives spark.submit.pyFiles spark.repl.local.jars
spark.driver.extraClassPath spark.executor.extraClassPath spark.driver.defaultExtraClassPath
spark.driver.extraLibraryPath spark.executor.extraLibraryPath
spark.sql.extensions spark.sql.catalog.mine spark.sql.catalog.spark_catalog spark.sql.catalog.mine.impl
spark.sql.queryExecutionListeners spark.sql.streaming.streamingQueryListeners spark.sql.extendedExplainProviders
spark.sql.hive.metastore.jars spark.sql.hive.metastore.jars.path spark.sql.maven.additionalRemoteRepositories
spark.metrics.conf spark.metrics.conf.*.sink.csv.class spark.ui.filters
spark.pyspark.python spark.pyspark.driver.python spark.sql.execution.pyspark.python spark.r.command
spark.r.driver.command
spark.driver.resource.gpu.discoveryScript spark.executor.resource.gpu.discoveryScript spark.resources.discoveryPlugin
spark.hadoop.net.topology.script.file.name spark.shuffle.sort.io.plugin.class spark.sql.cache.serializer
spark.yarn.jars spark.yarn.archive spark.yarn.dist.jars spark.yarn.dist.files
spark.yarn.dist.pyFiles spark.redaction.regex spark.executorEnv.PYTHONPATH spark.executorEnv.PYTHONSTARTUP
spark.executorEnv.LD_PRELOAD spark.executorEnv.LD_LIBRARY_PATH spark.executorEnv.JAVA_TOOL_OPTIONS
spark.executorEnv.JDK_JAVA_OPTIONS spark.executorEnv._JAVA_OPTIONS spark.executorEnv.CLASSPATH spark.executorEnv.PATH
spark.executorEnv.BASH_ENV spark.executorEnv.DYLD_INSERT_LIBRARIES spark.executorEnv.SPARK_CLASSPATH
spark.executorEnv.JAVA_HOME spark.executorEnv.HADOOP_CLASSPATH
spark.yarn.appMasterEnv.PYTHONPATH spark.kubernetes.driverEnv.LD_PRELOAD spark.home spark.executor.sparkHome
spark.PLUGINS Spark.Jars.Packages
"""
HARMLESS = {
    "spark.driver.memory": "2g",
    "spark.executorEnv.TZ": "UTC",
    "spark.executorEnv.AWS_REGION": "eu-central-1",
    "spark.sql.shuffle.partitions": "4",
    "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "spark.hadoop.fs.s3a.endpoint": "https://store.example",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.driver.extraJavaOptions": "-Xss4m -XX:+UseG1GC -XX:MaxGCPauseMillis=50 -Duser.timezone=UTC -Xlog:gc",
    "spark.executor.extraJavaOptions": "-Djavax.net.ssl.trustStore=/etc/trust.p12 -Djava.net.preferIPv4Stack=true",
    "spark.driver.defaultJavaOptions": "",
    "spark.kubernetes.container.image": "registry.example/laneway:1",
}
JAVA = [
    "-javaagent:/tmp/evil.jar",
    "-Xmx1g -javaagent:/tmp/evil.jar",
    "-agentlib:jdwp=transport=dt_socket,server=y",
    "-agentpath:/tmp/evil.so",
    "-Xbootclasspath/a:/tmp/evil.jar",
    "-cp /tmp/evil.jar",
    "--class-path=/tmp/evil.jar",
    "--patch-module java.base=/tmp/evil",
    "--module-path=/tmp/evil",
    "@/tmp/evil.args",
    "-XX:OnOutOfMemoryError='sh /tmp/evil'",
    "-XX:OnError=/tmp/evil",
    "-XX:Flags=/tmp/evil",
    "-XX:VMOptionsFile=/tmp/evil",
    "-XX:+UseSerialGC '-XX:OnError=/tmp/evil'",
    "-Djava.security.properties=/tmp/evil",
    "-Djava.system.class.loader=Evil",
    "-Djava.library.path=/tmp",
    "-Dlog4j2.configurationFile=/tmp/evil.xml",
    "-Dcom.sun.management.jmxremote.port=9",
    "-Dspark.plugins=Evil",
    "-Xrunevil",
    "-XX:SharedArchiveFile=/tmp/evil.jsa",
    "'unfinished",
]


def problems_of(text, tmp_path):
    path = tmp_path / "laneway.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(path)
    return caught.value.problems


@pytest.mark.parametrize("key", KEYS.split())
def test_an_option_that_loads_code_is_refused_with_its_line(key, tmp_path):
    """The problem names file, line and key, and says what to do instead."""
    [problem] = problems_of(f"default:\n  spark:\n    conf:\n      '{key}': pl4nted\n", tmp_path)

    assert (problem.line, problem.key) == (4, f"spark.conf.{key}")
    assert "pl4nted" not in str(problem)
    assert problem.fix


@pytest.mark.parametrize("name", ["spark.driver.extraJavaOptions", "spark.executor.defaultJavaOptions"])
@pytest.mark.parametrize("value", JAVA)
def test_java_options_that_load_code_are_refused(name, value, tmp_path):
    """Only options that are known to be harmless are taken; the value is not shown, it may hold a secret."""
    text = f'default:\n  spark:\n    conf:\n      {name}: "{value}"\n'
    [problem] = problems_of(text, tmp_path)

    assert (problem.line, problem.key) == (4, f"spark.conf.{name}")
    assert "evil" not in str(problem)


def test_a_secret_among_java_options_is_refused(tmp_path):
    """The arguments of a process can be read by every user of the machine."""
    text = "default:\n  spark:\n    conf:\n      spark.driver.extraJavaOptions: -Djavax.net.ssl.trustStorePassword=x4\n"
    [problem] = problems_of(text, tmp_path)

    assert "every user of the machine" in problem.message
    assert "x4" not in str(problem)


def test_the_message_names_the_two_ways_to_load_code(tmp_path):
    """Code that is wanted comes from the installation of Spark, or from a session that the app makes."""
    [problem] = problems_of("default:\n  spark:\n    conf:\n      spark.jars.packages: a:b:1\n", tmp_path)

    assert "loads code" in problem.message
    assert "spark-defaults.conf" in problem.fix
    assert "SparkSession" in problem.fix


def test_the_command_ends_with_2(tmp_path, monkeypatch, capsys):
    """And the line says where the option stands."""
    (tmp_path / "laneway.yaml").write_text("default:\n  spark:\n    conf:\n      spark.plugins: Evil\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["laneway", "config", "check"])
    with pytest.raises(SystemExit) as ended:
        _main.main()

    assert ended.value.code == 2
    assert "laneway.yaml:4: spark.conf.spark.plugins: the option is forbidden" in capsys.readouterr().err


@pytest.mark.parametrize("key", HARMLESS)
def test_harmless_options_pass(key):
    """What tunes Spark or names where to log in is taken as it is."""
    assert load(overrides={"spark.conf": {key: HARMLESS[key]}}).spark.conf == {key: HARMLESS[key]}
